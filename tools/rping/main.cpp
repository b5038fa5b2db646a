// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// ddp-rping: rping of rdma-core without RDMA hardware or a kernel driver. See man/ddp-rping.1.
#include <cstdio>

#include "tools/rping/client.h"
#include "tools/rping/log.h"
#include "tools/rping/options.h"
#include "tools/rping/server.h"

int main(int argc, char** argv) {
  using namespace ddpsock::rping;
  // A line at a time, also into a pipe or a file: the last ones are what a killed program leaves.
  setvbuf(stdout, nullptr, _IOLBF, 0);
  const auto parsed = parse(argc, argv);
  if (const int* status = std::get_if<int>(&parsed)) return *status;
  const Options& options = *std::get_if<Options>(&parsed);
  const auto done = options.is_server ? run_server(options) : run_client(options);
  if (!done) complain("{}", done.error().text);
  return done ? 0 : 1;
}
