// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The kernel's table of TCP sockets, asked through NETLINK_SOCK_DIAG (sock_diag(7)): which socket
// has a given pair of addresses, and who listens on a port. The answers name sockets by their
// cookie (SO_COOKIE), which is unique from boot to boot and never used again.
#ifndef DDPSOCK_SHIM_POLICY_INET_DIAG_H_
#define DDPSOCK_SHIM_POLICY_INET_DIAG_H_

#include <linux/netlink.h>

#include <cstdint>
#include <span>

#include "base/result.h"
#include "base/unfinished.h"
#include "shim/policy/address.h"

namespace ddpsock::shim {

struct KernelSocket {
  Address local;
  uint64_t cookie = 0;
  uint32_t uid = 0;        // of the socket's inode; 0 is not telling for one without an inode
  uint32_t inode = 0;      // 0: no process holds it
  uint32_t interface = 0;  // bound to this device only; 0: to none
  bool is_listener = false;
  bool has_inode = false;  // some process holds it (not: waiting to be accepted, closed, TIME_WAIT)
  bool is_v6_only = false;

  bool is_bound_to_device() const { return interface != 0; }
};

// SO_COOKIE and SO_NETNS_COOKIE. 0: the kernel does not tell (before Linux 4.12 and 5.14).
uint64_t socket_cookie(int fd);
uint64_t netns_cookie(int fd);

// The use of a netlink socket for one verdict. It never waits: the kernel answers these requests
// before the request's send returns. Nothing here goes through libc's socket calls, which are the
// library's own wrappers in a preloaded program. Async-signal-safe.
class InetDiag : private base::Unfinished {
 public:
  // `netns`: to be asked, of a socket that the verdict is on; the socket is kept for the next then
  // (kept_diag_socket.h). On failure every question is answered with open_error().
  explicit InetDiag(uint64_t netns = 0);
  ~InetDiag();
  InetDiag(const InetDiag&) = delete;
  InetDiag& operator=(const InetDiag&) = delete;

  // 0, or the errno of opening (EPROTONOSUPPORT, EACCES, EMFILE...).
  int open_error() const { return fd_ < 0 ? -fd_ : 0; }

  // The network namespace that is asked: that of the calling thread, where it is not the one that
  // was wanted. 0: unknown.
  uint64_t netns() const { return netns_; }

  // The socket with exactly these two addresses, in any state from SYN_SENT to TIME_WAIT; one that
  // waits to be accepted, or whose handshake has not ended on this side, is found too. ENOENT:
  // none.
  Result<KernelSocket> find_connection(const Address& local, const Address& remote);

  // The listener that the kernel would give a new connection from this host to `server`. In a
  // SO_REUSEPORT group it depends on the client's port, so one of them. ENOENT: none.
  Result<KernelSocket> find_listener(const Address& server);

  // Both in one question: the end on `server` of the connection from `client`, and who listens
  // there.
  struct Found;
  Found find_end_and_listener(const Address& server, const Address& client);

  // Calls `visit(context, socket)` for every listener on `port` that could take a connection to an
  // address of `server`'s family: bound to it, to a wildcard, or to another address.
  using Visit = void (*)(void* context, const KernelSocket& listener);
  Status<> visit_listeners(const Address& server, Visit visit, void* context);

 private:
  static void abandon(base::Unfinished& unfinished);
  void close();

  struct Query;
  Status<> ask(std::span<Query> queries);
  Result<KernelSocket> answer_to(const Query& query);
  Result<KernelSocket> ask_one(Query query);
  Status<> visit_family(uint8_t family, uint16_t port, Visit visit, void* context);

  int fd_ = -1;
  uint64_t wanted_netns_, netns_ = 0;
  bool is_kept_ = false;
  bool is_all_read_ = true;  // no answer is left in it for whoever asks next
};

struct InetDiag::Found {
  Result<KernelSocket> connection, listener;
};

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_POLICY_INET_DIAG_H_
