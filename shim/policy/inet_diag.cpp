// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/policy/inet_diag.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/kernel_call.h"
#include "base/random.h"
#include "shim/policy/kept_diag_socket.h"

namespace ddpsock::shim {
namespace {

constexpr int kSoNetnsCookie = 71;          // SO_NETNS_COOKIE, Linux 5.14
constexpr uint32_t kLoopbackInterface = 1;  // of every network namespace (LOOPBACK_IFINDEX)
constexpr uint32_t kAllStates = ~0U;
constexpr uint32_t kListening = 1U << TCP_LISTEN;
// The kernel fills at most what one recv offers, and offers to make that a page; stacks may be
// small.
constexpr size_t kDumpBuffer = 4096;
constexpr int kMostDumpReads = 4096;

uint64_t cookie_option(int fd, int option) {
  uint64_t cookie = 0;
  socklen_t length = sizeof cookie;
  if (base::kernel_call(SYS_getsockopt, fd, SOL_SOCKET, option, &cookie, &length) != 0) return 0;
  return cookie;
}

uint8_t family_of(const Address& a) {
  return a.is_v4() ? AF_INET : AF_INET6;
}

void put_address(const Address& from, uint8_t family, __be32 (&to)[4]) {
  if (family == AF_INET)
    std::memcpy(&to[0], &from.bytes[12], 4);
  else
    std::memcpy(to, from.bytes.data(), sizeof to);
}

Address take_address(uint8_t family, const __be32 (&from)[4], __be16 port) {
  Address a;
  if (family == AF_INET) {
    a.bytes[10] = a.bytes[11] = 0xff;
    std::memcpy(&a.bytes[12], &from[0], 4);
  } else {
    std::memcpy(a.bytes.data(), from, sizeof from);
  }
  a.port = ntohs(port);
  return a;
}

// REQUIRES: `attributes` are those behind an inet_diag_msg.
bool has_v6_only(std::span<const uint8_t> attributes) {
  while (attributes.size() >= sizeof(nlattr)) {
    nlattr attribute;
    std::memcpy(&attribute, attributes.data(), sizeof attribute);
    if (attribute.nla_len < sizeof attribute || attribute.nla_len > attributes.size()) return false;
    if (attribute.nla_type == INET_DIAG_SKV6ONLY && attribute.nla_len > sizeof attribute)
      return attributes[sizeof attribute] != 0;
    attributes =
        attributes.subspan(std::min<size_t>(NLA_ALIGN(attribute.nla_len), attributes.size()));
  }
  return false;
}

KernelSocket read_socket(std::span<const uint8_t> body) {
  inet_diag_msg m;
  std::memcpy(&m, body.data(), sizeof m);
  KernelSocket s;
  s.local = take_address(m.idiag_family, m.id.idiag_src, m.id.idiag_sport);
  std::memcpy(&s.cookie, m.id.idiag_cookie, sizeof s.cookie);
  s.uid = m.idiag_uid;
  s.interface = m.id.idiag_if;
  s.is_listener = m.idiag_state == TCP_LISTEN;
  s.inode = m.idiag_inode;
  s.has_inode = m.idiag_inode != 0;
  s.is_v6_only = m.idiag_family == AF_INET6 && has_v6_only(body.subspan(sizeof m));
  return s;
}

// Walks the netlink messages of one read.
class Messages {
 public:
  explicit Messages(std::span<const uint8_t> all) : rest_(all) {}

  bool next(nlmsghdr& header, std::span<const uint8_t>& body) {
    if (rest_.size() < sizeof header) return false;
    std::memcpy(&header, rest_.data(), sizeof header);
    if (header.nlmsg_len < sizeof header || header.nlmsg_len > rest_.size()) return false;
    body = rest_.subspan(sizeof header, header.nlmsg_len - sizeof header);
    rest_ = rest_.subspan(std::min<size_t>(NLMSG_ALIGN(header.nlmsg_len), rest_.size()));
    return true;
  }

 private:
  std::span<const uint8_t> rest_;
};

int error_in(std::span<const uint8_t> body) {
  nlmsgerr error;
  if (body.size() < sizeof error.error) return EBADMSG;
  std::memcpy(&error.error, body.data(), sizeof error.error);
  return error.error < 0 ? -error.error : EBADMSG;
}

// A read or the errno that it ended with. MSG_DONTWAIT: see the class comment.
Result<std::span<const uint8_t>> receive(int fd, std::span<uint8_t> into) {
  const long n =
      base::kernel_call(SYS_recvfrom, fd, into.data(), into.size(), MSG_DONTWAIT, nullptr, nullptr);
  if (n < 0) return fail_errno(errno);
  return std::span<const uint8_t>(into.data(), static_cast<size_t>(n));
}

// Others may send to a netlink socket: what is no answer to the question is none.
constexpr int kMostStrays = 8;
constinit std::atomic<uint32_t> questions{0};

// The kernel falls back to the listener on the local address.
Result<KernelSocket> as_connection(const Result<KernelSocket>& found) {
  if (found && found->is_listener) return fail_errno(ENOENT);
  return found;
}

Result<KernelSocket> as_listener(const Result<KernelSocket>& found) {
  if (found && !found->is_listener) return fail_errno(ENOENT);
  return found;
}

// For a listener is asked as for a connection that is not there.
Address nobody_like(const Address& server) {
  Address nobody;
  if (server.is_v4()) nobody.bytes[10] = nobody.bytes[11] = 0xff;
  return nobody;
}

uint32_t next_question() {
  if (questions.load(std::memory_order_relaxed) == 0) {
    std::array<uint8_t, sizeof(uint32_t)> random{};
    uint32_t first = 0, none = 0;
    if (base::fill_random(random)) std::memcpy(&first, random.data(), sizeof first);
    questions.compare_exchange_strong(none, first | 1, std::memory_order_relaxed);
  }
  return questions.fetch_add(2, std::memory_order_relaxed);
}

}  // namespace

struct InetDiag::Query {
  nlmsghdr header;
  inet_diag_req_v2 request;

  Query(uint8_t family, uint16_t flags) : header{}, request{} {
    header.nlmsg_len = sizeof *this;
    header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    header.nlmsg_flags = static_cast<uint16_t>(NLM_F_REQUEST | flags);
    request.sdiag_family = family;
    request.sdiag_protocol = IPPROTO_TCP;
    request.idiag_states = kAllStates;
    request.id.idiag_cookie[0] = request.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  }

  // A connection of this host to itself arrives over the loopback device, whatever its addresses.
  Query(const Address& local, const Address& remote) : Query(family_of(local), 0) {
    put_address(local, request.sdiag_family, request.id.idiag_src);
    put_address(remote, request.sdiag_family, request.id.idiag_dst);
    request.id.idiag_sport = htons(local.port);
    request.id.idiag_dport = htons(remote.port);
    request.id.idiag_if = kLoopbackInterface;
  }
};

uint64_t socket_cookie(int fd) {
  return cookie_option(fd, SO_COOKIE);
}

uint64_t netns_cookie(int fd) {
  return cookie_option(fd, kSoNetnsCookie);
}

InetDiag::InetDiag(uint64_t netns) : Unfinished(abandon), wanted_netns_(netns) {
  begin();
  if (netns != 0) fd_ = take_diag_socket(netns);
  is_kept_ = fd_ >= 0;
  if (is_kept_) {
    netns_ = netns;
    return;
  }
  fd_ = static_cast<int>(
      base::kernel_call(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (fd_ < 0)
    fd_ = -errno;
  else
    netns_ = netns_cookie(fd_);
}

InetDiag::~InetDiag() {
  close();
}

// It may have been asked since it was last known that no answer is left.
void InetDiag::abandon(base::Unfinished& unfinished) {
  auto& diag = static_cast<InetDiag&>(unfinished);
  diag.is_all_read_ = false;
  diag.close();
}

void InetDiag::close() {
  // A handler that jumps out of this must not close the number again: it may be another's by then.
  const int fd = std::exchange(fd_, -1);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (fd < 0) return;
  if (is_kept_)
    is_all_read_ ? return_diag_socket(fd) : drop_diag_socket(fd);
  else
    keep_diag_socket(fd, is_all_read_ && netns_ == wanted_netns_ ? netns_ : 0);
}

Status<> InetDiag::ask(std::span<Query> queries) {
  static_assert(sizeof(Query) % NLMSG_ALIGNTO == 0);
  if (fd_ < 0) return fail_errno(-fd_);
  for (Query& query : queries) query.header.nlmsg_seq = next_question();
  const long n =
      base::kernel_call(SYS_sendto, fd_, queries.data(), queries.size_bytes(), 0, nullptr, 0);
  if (n != static_cast<long>(queries.size_bytes())) return fail_errno(n < 0 ? errno : EBADMSG);
  is_all_read_ = false;
  return {};
}

Result<KernelSocket> InetDiag::answer_to(const Query& query) {
  uint8_t buffer[2048];
  nlmsghdr header{};
  std::span<const uint8_t> body;
  for (int strays = 0; header.nlmsg_seq != query.header.nlmsg_seq; ++strays) {
    const auto answer = receive(fd_, buffer);
    if (!answer) return std::unexpected(answer.error());
    if (!Messages(*answer).next(header, body) || strays == kMostStrays) return fail_errno(EBADMSG);
  }
  is_all_read_ = true;
  if (header.nlmsg_type == NLMSG_ERROR) return fail_errno(error_in(body));
  if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY || body.size() < sizeof(inet_diag_msg))
    return fail_errno(EBADMSG);
  return read_socket(body);
}

Result<KernelSocket> InetDiag::ask_one(Query query) {
  if (const auto asked = ask({&query, 1}); !asked) return std::unexpected(asked.error());
  return answer_to(query);
}

Result<KernelSocket> InetDiag::find_connection(const Address& local, const Address& remote) {
  return as_connection(ask_one(Query(local, remote)));
}

Result<KernelSocket> InetDiag::find_listener(const Address& server) {
  return as_listener(ask_one(Query(server, nobody_like(server))));
}

// The kernel answers in order, before the send returns: the last answer read, all are.
InetDiag::Found InetDiag::find_end_and_listener(const Address& server, const Address& client) {
  std::array queries{Query(server, client), Query(server, nobody_like(server))};
  if (const auto asked = ask(queries); !asked)
    return {std::unexpected(asked.error()), std::unexpected(asked.error())};
  const auto end = answer_to(queries[0]);
  is_all_read_ = false;
  return {as_connection(end), as_listener(answer_to(queries[1]))};
}

Status<> InetDiag::visit_listeners(const Address& server, Visit visit, void* context) {
  if (server.is_v4()) {
    const auto v4 = visit_family(AF_INET, server.port, visit, context);
    if (!v4) return v4;
  }
  return visit_family(AF_INET6, server.port, visit, context);
}

Status<> InetDiag::visit_family(uint8_t family, uint16_t port, Visit visit, void* context) {
  Query query(family, NLM_F_DUMP);
  query.request.idiag_states = kListening;
  query.request.id.idiag_sport = htons(port);
  if (const auto asked = ask({&query, 1}); !asked) return asked;
  uint8_t buffer[kDumpBuffer];
  for (int reads = 0; reads < kMostDumpReads; ++reads) {
    const auto answer = receive(fd_, buffer);
    if (!answer) return std::unexpected(answer.error());
    nlmsghdr header;
    std::span<const uint8_t> body;
    for (Messages messages(*answer); messages.next(header, body);) {
      if (header.nlmsg_seq != query.header.nlmsg_seq) continue;
      if (header.nlmsg_type == NLMSG_DONE) {
        is_all_read_ = true;
        return {};
      }
      if (header.nlmsg_type == NLMSG_ERROR) return fail_errno(error_in(body));
      if (body.size() >= sizeof(inet_diag_msg)) visit(context, read_socket(body));
    }
  }
  return fail_errno(E2BIG);
}

}  // namespace ddpsock::shim
