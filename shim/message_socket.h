// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Message mode on a descriptor: where the interposed calls meet message/. Functions that answer an
// int answer an errno value, or 0, unless they are named after a libc call.
#ifndef DDPSOCK_SHIM_MESSAGE_SOCKET_H_
#define DDPSOCK_SHIM_MESSAGE_SOCKET_H_

#include <sys/socket.h>

#include "ddpsock/ddpsock.h"
#include "message/connection.h"
#include "shim/fd_table.h"
#include "stream/stream.h"

namespace ddpsock::shim {

// nullptr: not in message mode, or made before a fork.
message::Handle* message_handle(const SocketUse& use);
// The same, and not a completion queue.
message::Connection* message_connection(const SocketUse& use);

// One-sided operations of a byte stream, which begin with this call. EOPNOTSUPP: no stream, or its
// peer or a fork says no. ENOTCONN: not yet known.
Result<message::Connection*> operations_of_stream(SocketUse& use, int fd);
// nullptr: none have begun in this process.
const message::Connection* begun_operations(const SocketUse& use);

// DDP_MODE_MESSAGE on a socket that is not connected, or listening.
int wish_messages(SocketUse& use, int fd);
int upgrade_to_messages(SocketUse& use, int fd, engine::Role role);
// DDP_MODE to something else: as long as it is not begun, or after a start-up that took nothing.
int leave_message_mode(const SocketUse& use, int fd);
// `fd` listens from now on.
void listen_for_messages(const Socket& socket, int fd);
// Makes `fd`, just accepted and entered as `socket`, a connection like its listener.
[[nodiscard]] bool enter_accepted(const message::Connection& listener, Socket& socket, int fd);

// As connect() and shutdown().
int connect_message(Socket& socket, message::Connection& c, int fd, const sockaddr* to,
                    socklen_t length);
// The end of what connect_message() may have published, at the latest when `fd` is closed.
void withdraw_offer(Socket& socket, int fd);
int shut_message(message::Connection& c, int how);
// What SO_ERROR has to say of a connect() under way.
int message_socket_error(const SocketUse& use);

// False: not begun.
bool describe_messages(const message::Connection& c, ddp_status& to);
// The fields of a stream's that are theirs.
void describe_operations(const message::Connection& c, ddp_status& to);
// As setsockopt() and getsockopt(), of the options that only message mode has.
int set_message_option(int fd, int name, const void* value, socklen_t length);
int get_message_option(int fd, int name, void* value, socklen_t* length);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_MESSAGE_SOCKET_H_
