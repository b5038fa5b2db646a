// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "act.h"
#include "base/kernel_call.h"

namespace ddpsock::sequences {
namespace {

using base::kernel_call;

sockaddr* general(sockaddr_in& address) {
  return reinterpret_cast<sockaddr*>(&address);
}

// The kernel's own word, behind the library's back.
int port_of(long call, int fd) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  return kernel_call(call, fd, general(address), &length) == 0 ? ntohs(address.sin_port) : -1;
}

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

int make_socket(bool is_plain, bool is_nonblocking) {
  const int type = SOCK_STREAM | (is_nonblocking ? SOCK_NONBLOCK : 0);
  return is_plain ? static_cast<int>(kernel_call(SYS_socket, AF_INET, type, 0))
                  : socket(AF_INET, type, 0);
}

int make_client(int slot, bool is_nonblocking) {
  const int fd = make_socket(world->plain == Plain::kClients, is_nonblocking);
  if (fd < 0) return fd;
  const int connection = world->connection_count.fetch_add(1) % kConnections;
  note(slot, fd, {Object::What::kStream, static_cast<int8_t>(connection), 0});
  return fd;
}

int connect_to(int fd, int port) {
  sockaddr_in address = loopback(port);
  const int result =
      world->plain == Plain::kClients
          ? static_cast<int>(kernel_call(SYS_connect, fd, general(address), sizeof address))
          : connect(fd, general(address), sizeof address);
  const int saved = errno;
  const Object object = object_of(fd);
  if (object.what == Object::What::kStream && object.side == 0)
    world->connections[static_cast<size_t>(object.connection)].client_port =
        port_of(SYS_getsockname, fd);
  errno = saved;
  return result;
}

int make_listener(int slot, bool is_nonblocking) {
  const bool is_plain = world->plain == Plain::kServers;
  const int fd = make_socket(is_plain, is_nonblocking);
  if (fd < 0) return fd;
  note(slot, fd, {Object::What::kListener, -1, 0});
  sockaddr_in address = loopback(0);
  const long bound = kernel_call(SYS_bind, fd, general(address), sizeof address);
  if (bound != 0) return -1;
  return (is_plain ? static_cast<int>(kernel_call(SYS_listen, fd, 8)) : listen(fd, 8)) == 0 ? fd
                                                                                            : -1;
}

// Which connection this is, by the other end's port.
Object accepted_object(int fd) {
  const int port = port_of(SYS_getpeername, fd);
  for (int i = 0; i < kConnections; ++i)
    if (port > 0 && world->connections[static_cast<size_t>(i)].client_port == port)
      return {Object::What::kStream, static_cast<int8_t>(i), 1};
  return {Object::What::kOther, -1, 0};
}

int accept_from(int listener, int slot, int flags, int how) {
  int fd;
  if (world->plain == Plain::kServers) {
    fd = static_cast<int>(kernel_call(SYS_accept4, listener, nullptr, nullptr, flags));
  } else if (how == 0) {
    fd = accept4(listener, nullptr, nullptr, flags);
  } else if (how == 1 && flags == 0) {
    fd = accept(listener, nullptr, nullptr);
  } else {
    fd = static_cast<int>(syscall(SYS_accept4, listener, nullptr, nullptr, flags));
  }
  const int saved = errno;
  if (fd >= 0) note(slot, fd, accepted_object(fd));
  errno = saved;
  return fd;
}

void make_pair(const Op& op, Answer& answer) {
  const bool is_client_nonblocking = (op.argument[2] & 1) != 0;
  const int flags = (op.argument[2] & 2) != 0 ? SOCK_NONBLOCK : 0;
  const int listener_slot = op.argument[1];
  const int listener = make_listener(listener_slot, false);
  answer.add_result(listener);
  const int client = make_client(op.argument[0], false);
  answer.add(" ");
  answer.add_result(client);
  answer.add(" ");
  answer.add_result(connect_to(client, port_of(SYS_getsockname, listener)));
  answer.add(" ");
  answer.add_result(accept_from(listener, op.argument[1], flags, 0));
  close(listener);
  forget(listener);
  const int one = 1;
  setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  setsockopt(fd_of(op.argument[1]), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (is_client_nonblocking) fcntl(client, F_SETFL, O_NONBLOCK);
}

void shut(const Op& op, Answer& answer) {
  const int fd = fd_of(op.argument[0]), how = op.argument[1];
  const Object object = object_of(fd);
  const bool is_certain = is_reset_certain(object);
  const long result = op.argument[2] != 0 ? syscall(SYS_shutdown, fd, how) : shutdown(fd, how);
  is_certain ? answer.add_result(result) : answer.add("not certain");
  if (result != 0 || outgoing(object) == nullptr) return;
  if (how != SHUT_RD) outgoing(object)->is_ended = true;
  if (how != SHUT_WR) incoming(object)->is_unwanted = true;
}

void name(const Op& op, Answer& answer) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  const int fd = fd_of(op.argument[0]);
  const int result = op.argument[1] != 0 ? getpeername(fd, general(address), &length)
                                         : getsockname(fd, general(address), &length);
  answer.add_result(result);
  if (result == 0) answer.add(" family %d length %u", address.sin_family, length);
}

}  // namespace

void act_on_connections(const Op& op, Answer& answer) {
  const auto& argument = op.argument;
  switch (op.kind) {
    case Kind::kPair:
      return make_pair(op, answer);
    case Kind::kListen:
      return answer.add_result(make_listener(argument[0], argument[1] != 0));
    case Kind::kSocket:
      return answer.add_result(make_client(argument[0], argument[1] != 0));
    case Kind::kConnect: {
      const int port = port_of(SYS_getsockname, fd_of(argument[1]));
      return answer.add_result(connect_to(fd_of(argument[0]), port > 0 ? port : 1));
    }
    case Kind::kAccept:
      return answer.add_result(accept_from(fd_of(argument[1]), argument[0],
                                           argument[2] != 0 ? SOCK_NONBLOCK : 0, argument[3]));
    case Kind::kShutdown:
      return shut(op, answer);
    default:
      return name(op, answer);
  }
}

}  // namespace ddpsock::sequences
