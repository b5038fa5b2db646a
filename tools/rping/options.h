// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_TOOLS_RPING_OPTIONS_H_
#define DDPSOCK_TOOLS_RPING_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "base/clock.h"
#include "mpa/agreement.h"
#include "tools/rping/protocol.h"

namespace ddpsock::rping {

inline constexpr uint32_t kClientSize = 64;
inline constexpr uint32_t kServerRoom = 64 * 1024;
inline constexpr uint32_t kMaxSize = 64 * 1024 * 1024;

struct Options {
  bool is_server = false;
  bool is_persistent = false;
  bool is_verbose = false;     // print the data
  bool must_validate = false;  // compare the data
  bool is_debug = false;
  std::string address;
  std::string source;
  uint16_t port = kDefaultPort;
  uint32_t count = 0;  // 0: the client goes on for ever, the server takes any number
  uint32_t size = 0;   // client: of a ping; server: the largest it takes
  bool wants_crc = true;
  std::optional<uint8_t> revision;  // nothing: 2, then 1
  bool is_peer_to_peer = false;
  mpa::RtrSet rtr{};
  mpa::PrivateData private_data;
  Duration timeout{};            // for each step of the peer
  std::optional<Duration> wait;  // server: for the next client; nothing: for ever
};

// What the command line says, or the exit status if that was all (help, version, a mistake, which
// is then explained on stderr).
std::variant<Options, int> parse(int argc, char** argv);

}  // namespace ddpsock::rping

#endif  // DDPSOCK_TOOLS_RPING_OPTIONS_H_
