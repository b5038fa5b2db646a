// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tools/perf/patience.h"

#include <linux/tcp.h>
#include <netinet/in.h>

#include <algorithm>
#include <cassert>

#include "base/sys.h"

namespace ddpsock::perf {

void Patience::renew(std::span<const int> fds) {
  assert(fds.size() <= kMostFds);
  std::fill(std::begin(fds_), std::end(fds_), -1);
  std::copy(fds.begin(), fds.end(), fds_);
  carried_ = carried();
  deadline_ = base::now() + most_;
}

bool Patience::lasts() {
  if (base::now() < deadline_) return true;
  const uint64_t now = carried();
  if (now == carried_) return false;
  carried_ = now;
  deadline_ = base::now() + most_;
  return true;
}

uint64_t Patience::carried() const {
  uint64_t sum = 0;
  for (int fd : fds_) {
    tcp_info info{};
    socklen_t size = sizeof info;
    if (fd < 0 || base::sys.getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) continue;
    sum += info.tcpi_bytes_acked + info.tcpi_bytes_received;
  }
  return sum;
}

}  // namespace ddpsock::perf
