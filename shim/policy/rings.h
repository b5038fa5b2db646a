// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Programs that do their socket I/O by io_uring reach the kernel past any preload: they would see a
// stream's framing. They are known by what they are linked with and by the rings that they make,
// and their connections are plain TCP.
#ifndef DDPSOCK_SHIM_POLICY_RINGS_H_
#define DDPSOCK_SHIM_POLICY_RINGS_H_

#include <cstdint>
#include <string_view>

namespace ddpsock::shim {

inline constexpr char kRings[] = "the program does its socket I/O by io_uring";
// Of the libraries that a program needs: the one by which rings are used.
inline constexpr std::string_view kRingLibrary = "liburing.so";

// Programs that are known to have rings for files, or to wait, and to use sockets by libc. `path`
// as it was started, or its file.
bool has_rings_for_files_only(std::string_view path);

// Does this process use sockets by io_uring, as far as can be known by now? Looks once for what it
// is linked with.
bool may_use_sockets_by_rings();

// The same by the code of the program, once; when its first connection or listener is judged.
void look_for_ring_code();

// Code at `caller` is about to make a ring by syscall(). True: it is not known to leave sockets
// alone.
bool is_ring_for_sockets(const void* caller);
// There is a ring: made by such code, or of unknown origin (by a copy of liburing in the program,
// or inherited), which may be one for files.
enum class Maker : uint8_t { kSuchCode, kUnknown };
void note_ring(Maker maker);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_POLICY_RINGS_H_
