// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Shared memory that is much larger than what of it is ever touched, so that a program which locks
// all its memory must not be given all of it.
#ifndef DDPSOCK_BASE_SPARSE_H_
#define DDPSOCK_BASE_SPARSE_H_

#include <sys/mman.h>
#include <sys/types.h>

#include <cstddef>
#include <string_view>

namespace ddpsock::base {

// Maps `size` bytes of `fd` from `offset` on, a memfd whose name begins with "ddpsock" if
// mlockall(MCL_CURRENT) is to leave it out, too, or
// anonymous ones if it is negative (one mapping a process): shared, to read and write or as
// `protection` says, no page provided, also after mlockall(MCL_FUTURE). nullptr with errno where
// the kernel refuses; munmap() ends it.
void* map_sparse(size_t size, int fd, off_t offset = 0, int protection = PROT_READ | PROT_WRITE);

// Whether this process ever had such memory.
bool has_sparse();
// Whether the mapping at `from`, called `name` in /proc/PID/maps, is one of them.
bool is_sparse(const void* from, std::string_view name);

}  // namespace ddpsock::base

#endif  // DDPSOCK_BASE_SPARSE_H_
