// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tools/rping/options.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <vector>

namespace ddpsock::rping {
namespace {

constexpr int kMistake = 2;
// With the four octets of the enhanced set-up a frame holds no more.
constexpr size_t kMaxPrivateData = MPA_MAX_PD_LENGTH - 4;
constexpr double kMaxSeconds = 86'400;

// As they stand on the command line.
struct Words {
  bool is_client = false;
  bool is_server = false;
  bool has_crc = true;
  double timeout = 10;
  double wait = 0;
  int revision = -1;
  std::string private_data;
  std::vector<std::string> rtr;
};

void declare(CLI::App& app, Options& options, Words& words) {
  app.set_version_flag("--version", "ddp-rping " DDPSOCK_VERSION);
  app.add_flag("-c,--client", words.is_client, "be the client");
  app.add_flag("-s,--server", words.is_server, "be the server");
  app.add_option("-a,--address", options.address, "the server's address");
  app.add_option("-p,--port", options.port, "the server's port")->capture_default_str();
  app.add_option("-I,--source", options.source, "client: the address to connect from");
  app.add_flag("-P,--persistent", options.is_persistent, "server: serve clients until killed");
  app.add_flag("-v,--verbose", options.is_verbose, "print the data");
  app.add_flag("-V,--validate", options.must_validate, "compare the data");
  app.add_flag("-d,--debug", options.is_debug, "say on stderr what happens");
  app.add_option("-C,--count", options.count, "client: pings, 0: without end; server: expected");
  app.add_option("-S,--size", options.size,
                 "client: bytes of a ping (64); server: the most it takes (65536)")
      ->check(CLI::Range(uint32_t{1}, kMaxSize));
  app.add_flag("--crc,!--no-crc", words.has_crc, "ask for CRCs (default), or offer to go without");
  app.add_option("--mpa-rev", words.revision, "client: this MPA revision and no other")
      ->check(CLI::Range(0, 2));
  app.add_flag("--peer-to-peer", options.is_peer_to_peer, "client: offer an RTR message");
  app.add_option("--rtr", words.rtr, "RTR messages to offer or accept")
      ->delimiter(',')
      ->check(CLI::IsMember({"send", "write", "read"}));
  app.add_option("--private-data", words.private_data, "text for the peer in the start-up frame")
      ->type_name("TEXT");
  app.add_option("--timeout", words.timeout, "seconds for each step of the peer")
      ->check(CLI::Range(0.001, kMaxSeconds))
      ->capture_default_str();
  app.add_option("--wait", words.wait, "server: seconds for the next client, 0: for ever")
      ->check(CLI::Range(0.0, kMaxSeconds));
}

Duration of_seconds(double seconds) {
  return Duration::from_ms(static_cast<int64_t>(std::ceil(seconds * 1'000)));
}

mpa::RtrSet rtr_set(const Words& words, bool is_server) {
  if (words.rtr.empty()) return {.has_send = is_server, .has_write = true, .has_read = true};
  const auto has = [&](const char* name) {
    return std::find(words.rtr.begin(), words.rtr.end(), name) != words.rtr.end();
  };
  return {.has_send = has("send"), .has_write = has("write"), .has_read = has("read")};
}

// What contradicts itself; empty: nothing.
std::string mistake_in(const Options& options, const Words& words) {
  if (words.is_client == words.is_server) return "which is it, -c or -s?";
  if (words.private_data.size() > kMaxPrivateData) {
    return fmt::format("--private-data: at most {} bytes", kMaxPrivateData);
  }
  if (words.is_client) {
    if (options.address.empty()) return "-c needs the server's address: -a ADDRESS";
    if (options.port == 0) return "-c needs the server's port: -p PORT";
    if (options.is_persistent || words.wait != 0) return "-P and --wait are the server's";
    const bool wants_rtr = options.is_peer_to_peer || !words.rtr.empty();
    if (wants_rtr && words.revision >= 0 && words.revision < int{MPA_REVISION_ENHANCED}) {
      return "--peer-to-peer and --rtr need MPA revision 2";
    }
    return "";
  }
  if (!options.source.empty()) return "-I is the client's; -a says where the server listens";
  if (words.revision >= 0) return "--mpa-rev is the client's; the server answers each as it asks";
  if (options.is_peer_to_peer) return "--peer-to-peer is the client's; the server follows";
  return "";
}

void complete(Options& options, const Words& words) {
  options.is_server = words.is_server;
  options.wants_crc = words.has_crc;
  options.is_peer_to_peer = options.is_peer_to_peer || (words.is_client && !words.rtr.empty());
  options.rtr = rtr_set(words, words.is_server);
  options.timeout = of_seconds(words.timeout);
  if (words.wait != 0) options.wait = of_seconds(words.wait);
  if (words.revision >= 0) options.revision = static_cast<uint8_t>(words.revision);
  if (options.size == 0) options.size = words.is_server ? kServerRoom : kClientSize;
  const Bytes text(reinterpret_cast<const uint8_t*>(words.private_data.data()),
                   words.private_data.size());
  options.private_data = *mpa::PrivateData::from(text);
}

}  // namespace

std::variant<Options, int> parse(int argc, char** argv) {
  CLI::App app(
      "ddp-rping -s [-vVdP] [-a ADDRESS] [-p PORT] [-S SIZE] [-C COUNT] [OPTIONS]\n"
      "ddp-rping -c [-vVd] -a ADDRESS [-p PORT] [-S SIZE] [-C COUNT] [OPTIONS]\n"
      "Sends pings by RDMA Read and Write as rping of rdma-core does, to it or to another.",
      "ddp-rping");
  Options options;
  Words words;
  declare(app, options, words);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kMistake;
  }
  if (const std::string mistake = mistake_in(options, words); !mistake.empty()) {
    fmt::print(stderr, "ddp-rping: {} (ddp-rping --help)\n", mistake);
    return kMistake;
  }
  complete(options, words);
  return options;
}

}  // namespace ddpsock::rping
