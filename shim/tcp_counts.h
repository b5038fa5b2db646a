// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the kernel counts of a TCP connection, as the program shall see it of a stream: its own
// bytes, not the framing's, and those that go through memory too.
#ifndef DDPSOCK_SHIM_TCP_COUNTS_H_
#define DDPSOCK_SHIM_TCP_COUNTS_H_

#include <sys/socket.h>

#include "shim/fd_table.h"
#include "stream/stream.h"

namespace ddpsock::shim {

// SIOCOUTQ and SIOCOUTQNSD: bytes of the program's that are not acknowledged, or not sent. At least
// so many are under way if the kernel has `of_wire` on the wire; never more than it has sent.
int queued_of_stream(const engine::Stream& stream, int of_wire);

// Corrects `length` bytes of the kernel's tcp_info.
void correct_tcp_info(engine::Stream& stream, int fd, void* info, socklen_t length);

// TCP_INQ, which the engine needs for itself.
int get_tells_queue(int fd, void* value, socklen_t* length);
int set_tells_queue(int fd, const void* value, socklen_t length);
// The connection is the engine's from now on, or the kernel's again.
void take_over_tells_queue(Socket& socket, int fd);
void give_back_tells_queue(const Socket& socket, int fd);
// Adds how much is there for the next call to a message that has been received from the stream of
// `use`, and for whose control data there were `room` bytes, if the program asked for that.
void tell_queue(const SocketUse& use, int fd, msghdr& message, size_t room);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_TCP_COUNTS_H_
