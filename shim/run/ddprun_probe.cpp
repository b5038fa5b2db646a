// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "shim/run/ddprun_probe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fmt/core.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstring>
#include <memory>

#include "base/clock.h"
#include "connect/handshake.h"
#include "stream/hello.h"

namespace ddpsock::shim {
namespace {

constexpr int kPatienceSeconds = 5;
constexpr Duration kPatience = Duration::from_ms(kPatienceSeconds * 1000);

const sockaddr* address_of(const Endpoint& e) {
  return reinterpret_cast<const sockaddr*>(&e.storage);
}

std::string text_of(const Endpoint& e) {
  char host[NI_MAXHOST] = "?", port[NI_MAXSERV] = "?";
  getnameinfo(address_of(e), e.length, host, sizeof host, port, sizeof port,
              NI_NUMERICHOST | NI_NUMERICSERV);
  return e.storage.ss_family == AF_INET6 ? fmt::format("[{}]:{}", host, port)
                                         : fmt::format("{}:{}", host, port);
}

bool wait_for(int fd, short events, Time deadline) {
  while (true) {
    pollfd entry{fd, events, 0};
    const int ready = poll(&entry, 1, static_cast<int>((deadline - base::now()).ceil_ms()));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

// A name server that is silent is not waited for. What is asked outlives a question that was given
// up: resolver threads may still write there.
struct Lookup {
  std::string host, port;
  addrinfo hints{};
  gaicb request{};
};

std::expected<addrinfo*, std::string> look_up_name(std::string host, std::string port) {
  auto* lookup = new Lookup{std::move(host), std::move(port), {}, {}};
  lookup->hints.ai_socktype = SOCK_STREAM;
  lookup->request.ar_name = lookup->host.c_str();
  lookup->request.ar_service = lookup->port.c_str();
  lookup->request.ar_request = &lookup->hints;
  gaicb* requests[] = {&lookup->request};
  if (const int error = getaddrinfo_a(GAI_NOWAIT, requests, 1, nullptr); error != 0)
    return std::unexpected(gai_strerror(error));
  const Time deadline = base::now() + kPatience;
  while (gai_error(&lookup->request) == EAI_INPROGRESS) {
    const int64_t left = (deadline - base::now()).ceil_ms();
    if (left == 0)
      return std::unexpected(fmt::format("no answer within {} seconds", kPatienceSeconds));
    const timespec patience{left / 1000, left % 1000 * 1'000'000};
    gai_suspend(requests, 1, &patience);
  }
  const std::unique_ptr<Lookup> done(lookup);
  if (const int error = gai_error(&lookup->request); error != 0)
    return std::unexpected(gai_strerror(error));
  return lookup->request.ar_result;
}

std::string describe(const mpa::Agreement& agreement) {
  const auto hello = stream::decode_hello(agreement.private_data.bytes());
  return fmt::format("MPA revision {}, {}, {}", agreement.revision,
                     agreement.has_crc ? "with CRC" : "without CRC",
                     hello ? "by ddpsock" : "by another implementation");
}

mpa::InitiatorConfig request() {
  std::array<uint8_t, DDPSOCK_HELLO_MAX_SIZE> room{};
  stream::Hello hello;
  hello.features |= DDPSOCK_FEATURE_HURRY;
  hello.max_payload = 65'000;
  const auto size = stream::encode(room, hello);
  mpa::InitiatorConfig config{.timeouts = {.request = kPatience, .reply = kPatience}};
  if (const auto data = mpa::PrivateData::from(Bytes(room).first(size.value_or(0))))
    config.private_data = *data;
  return config;
}

}  // namespace

std::expected<std::vector<Endpoint>, std::string> find_endpoints(const std::string& given) {
  const size_t colon = given.rfind(':');
  std::string host = given.substr(0, colon);
  const bool is_bracketed = host.starts_with('[') && host.ends_with(']');
  if (is_bracketed) host = host.substr(1, host.size() - 2);
  if (colon == given.npos || host.empty() || (!is_bracketed && host.find(':') != host.npos))
    return std::unexpected("expected host:port, or [address]:port for IPv6");
  const std::string port = given.substr(colon + 1);
  auto found = look_up_name(host, port);
  if (!found) return std::unexpected(found.error());
  std::vector<Endpoint> endpoints;
  for (const addrinfo* i = *found; i != nullptr; i = i->ai_next) {
    Endpoint e;
    std::memcpy(&e.storage, i->ai_addr, i->ai_addrlen);
    e.length = i->ai_addrlen;
    const auto address = read_address(i->ai_addr, i->ai_addrlen);
    if (!address || address->port == 0) continue;
    e.address = *address;
    e.text = text_of(e);
    endpoints.push_back(e);
  }
  freeaddrinfo(*found);
  if (endpoints.empty()) return std::unexpected("expected a port from 1 to 65535 of an IP address");
  return endpoints;
}

bool is_of_this_host(const Endpoint& endpoint) {
  const base::UniqueFd fd(socket(endpoint.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.is_valid() || connect(fd.get(), address_of(endpoint), endpoint.length) != 0) return false;
  sockaddr_storage local{};
  socklen_t length = sizeof local;
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&local), &length);
  const auto own = read_address(reinterpret_cast<const sockaddr*>(&local), length);
  return endpoint.address.is_wildcard() || endpoint.address.is_loopback() ||
         (own && own->bytes == endpoint.address.bytes);
}

std::expected<base::UniqueFd, int> connect_to(const Endpoint& endpoint) {
  base::UniqueFd fd(
      socket(endpoint.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.is_valid()) return std::unexpected(errno);
  if (connect(fd.get(), address_of(endpoint), endpoint.length) != 0 && errno != EINPROGRESS)
    return std::unexpected(errno);
  if (!wait_for(fd.get(), POLLOUT, base::now() + kPatience)) return std::unexpected(ETIMEDOUT);
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) return std::unexpected(error);
  return fd;
}

std::expected<std::string, std::string> ask_for_mpa(int fd) {
  connecting::Handshake mpa(fd, {.startup = request()});
  if (mpa.run() == mpa::StartupState::kAgreed) return describe(mpa.agreement());
  if (mpa.failure().error == mpa::StartupError::kTimedOut)
    return std::unexpected(fmt::format("no answer within {} seconds", kPatienceSeconds));
  return std::unexpected(mpa::to_text(mpa.failure().error));
}

}  // namespace ddpsock::shim
