// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// From a verdict to a stream, and from a stream back to plain TCP.
#ifndef DDPSOCK_SHIM_CONNECTION_H_
#define DDPSOCK_SHIM_CONNECTION_H_

#include "shim/fd_table.h"
#include "shim/policy/policy.h"

namespace ddpsock::shim {

// SO_PROTOCOL says TCP. errno is kept.
bool is_tcp_socket(int fd);

// Could rules choose `fd`, a TCP socket that is not connected, when it is?
bool may_be_chosen_later(int fd);

// Opens the engine's stream on the connected or connecting `fd` and moves `socket` to `phase`.
// False if the engine has no room: the caller must end the connection, because the peer may count
// on it.
[[nodiscard]] bool open_stream(Socket& socket, int fd, engine::Role role, engine::Peer peer,
                               Phase phase);

// What the kernel says of a connection of this program.
enum class Tcp : uint8_t { kConnecting, kEstablished, kFailed };
Tcp tcp_state(int fd);

// The program has the kernel shape the traffic of a socket (SO_MAX_PACING_RATE, TCP_TX_DELAY),
// which it can do on the wire only.
void note_shaped();

// Whether the connection may lie in shared memory, as far as program and environment are concerned.
bool may_share_memory(const Socket& socket);

// Says which engine a connection is opened with: "shm" where shared memory may serve, else "user".
const char* engine_asked_for(const Socket& socket);

// A connection in kConnecting may be established by now: finds out, asks the policy for its last
// word and lets the engine start. With `wait` the engine waits for the peer's Reply (a blocking
// connect). 0, or the errno that connect() reports. Afterwards the phase is kStream, kPlain, kIdle
// (TCP has failed), or still kConnecting. errno is kept. `known`: what connect(2) has just told.
int complete_connect(SocketUse& use, int fd, bool wait, std::optional<Tcp> known = std::nullopt);

// shutdown() before TCP is established ends the attempt, and the socket is as new.
int shut_connecting(SocketUse& use, int fd, int how);

// What SO_RCVLOWAT was taken over with from the kernel, or set to since, is the kernel's again.
void give_back_low_water(Socket& socket, int fd);

// The connection is plain TCP from now on; its stream goes when no call uses it any more.
void make_plain(Socket& socket, int fd, const char* reason);

// Tells the log and the statistics that a connection is plain TCP, and why (static text).
void report_plain(const char* event, int fd, const char* reason);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_CONNECTION_H_
