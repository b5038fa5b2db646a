// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The command line that all measured programs share, and the sockets it describes.
//
//   --address=A     IPv4 address to listen on or connect to (127.0.0.1)
//   --port=P        where the server listens
//   --size=BYTES    of one message
//   --count=N       messages, or connections where the case is about connections
//   --seconds=S     stop after so long
//   --wait=HOW      block (default), spin, epoll or poll; see peer.h
//   --cpu=N         run on this CPU only
//   --cc=NAME       congestion control of every socket
//   --crc           compute CRC32c over every byte on both sides, the least a checked transport
//   costs
//   --no-mpa-crc    ask for DDP without CRC
//   --window=N      messages that the sender has under way (64)
//   --nodelay       TCP_NODELAY also where the case goes without
//   --caller        message mode: no thread of the library moves the bytes, the program's calls do
//   --mapped        message mode: what the peer reaches is memory from ddp_alloc()
//   --engine=NAME   message mode: the engine it must run over
#ifndef DDPSOCK_BENCH_OPTIONS_H_
#define DDPSOCK_BENCH_OPTIONS_H_

#include <cstdint>
#include <string_view>

#include "bench/peer.h"
#include "ddpsock/ddpsock.h"

namespace ddpsock::bench {

struct Options {
  std::string_view what;
  const char* address = "127.0.0.1";
  int port = 0;
  uint64_t size = 64;
  uint64_t count = UINT64_MAX;
  double seconds = 1e9;
  Wait wait = Wait::kBlocking;
  bool has_crc = false;
  bool is_without_mpa_crc = false;
  uint64_t window = 64;
  bool is_nodelay = false;
  bool is_caller_driven = false;
  bool is_mapped = false;
  ddp_depths depths{};  // of sockets in message mode; no sends: plain sockets
  const char* engine = nullptr;
  int cpu = -1;
  const char* congestion_control = "";
};

// Reads the command line, goes to the CPU it names and chooses the CRC's code; ends the program
// with status 2 if an argument is not known.
Options start(int argc, char** argv);

// Prints the port, which the kernel chooses, as a line of its own.
int listen_and_print_port(const Options& options);
int accept_one(int listener);
int connect_to(const Options& options);
// Of a connection in message mode that is up: ends the program if it runs over another than asked
// for.
void check_engine(int fd, const Options& options);
void set_nodelay(int fd);

}  // namespace ddpsock::bench

#endif  // DDPSOCK_BENCH_OPTIONS_H_
