// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// FILEs on streams. libc's own make their system calls past any preload, so a stream gets one whose
// bytes go through our calls.
#ifndef DDPSOCK_SHIM_STDIO_FILES_H_
#define DDPSOCK_SHIM_STDIO_FILES_H_

namespace ddpsock::shim {

// Puts such a FILE into stdin, stdout or stderr if `fd` is 0, 1 or 2 and has become a socket of
// ours: at library start, or by dup2 as shells redirect their builtins. It serves whatever the
// descriptor is later. Bytes that wait in libc's FILE move over. errno is kept.
void cover_standard_file(int fd);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_STDIO_FILES_H_
