// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What can be asked of an address without privilege: its name, whether it is this host's, whether
// somebody answers there, and with leave whether that somebody speaks MPA. Each wait has a
// deadline.
#ifndef DDPSOCK_SHIM_RUN_DDPRUN_PROBE_H_
#define DDPSOCK_SHIM_RUN_DDPRUN_PROBE_H_

#include <sys/socket.h>

#include <expected>
#include <string>
#include <vector>

#include "base/fd.h"
#include "shim/policy/address.h"

namespace ddpsock::shim {

struct Endpoint {
  sockaddr_storage storage{};
  socklen_t length = 0;
  Address address;
  std::string text;  // 127.0.0.1:80, [::1]:80
};

// "host:port", "[v6]:port"; or what is wrong with it.
std::expected<std::vector<Endpoint>, std::string> find_endpoints(const std::string& given);

// Would the kernel deliver to this host, in this network namespace? Nothing is sent.
bool is_of_this_host(const Endpoint& endpoint);

// Or an errno value.
std::expected<base::UniqueFd, int> connect_to(const Endpoint& endpoint);

// Sends an MPA Request, which is nonsense to a server of anything else. What came back, or why that
// was no Reply.
std::expected<std::string, std::string> ask_for_mpa(int fd);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_RUN_DDPRUN_PROBE_H_
