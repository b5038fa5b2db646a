// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// FILEs on streams. libc's own make their system calls past any preload, so a stream gets one whose
// bytes go through our calls.
#ifndef DDPSOCK_SHIM_CALLS_STDIO_FILES_H_
#define DDPSOCK_SHIM_CALLS_STDIO_FILES_H_

#include <stdio.h>

namespace ddpsock::shim {

// Puts such a FILE into stdin, stdout or stderr if `fd` is 0, 1 or 2 and has become a socket of
// ours: at library start, or by dup2 as shells redirect their builtins. It serves whatever the
// descriptor is later. Bytes that wait in libc's FILE move over. errno is kept.
void cover_standard_file(int fd);

// A program is about to read or write wide characters, for which our FILEs are not fit. libc's own
// are, so the connection of one that was not used yet returns to plain TCP, and it becomes libc's.
// The FILE that libc's call is to be given. Where there is no way back, or bytes were read or
// written before, it is one of which libc refuses wide characters.
FILE* make_fit_for_wide(FILE* file);
inline FILE* fit_for_wide(FILE* file) {
  // As our FILEs have it, and none of libc's.
  return file->_wide_data == nullptr ? make_fit_for_wide(file) : file;
}

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_CALLS_STDIO_FILES_H_
