// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#ifndef DDPSOCK_TOOLS_RPING_LOG_H_
#define DDPSOCK_TOOLS_RPING_LOG_H_

#include <fmt/core.h>

#include <cstdio>
#include <string>

#include "mpa/agreement.h"
#include "tools/rping/options.h"

namespace ddpsock::rping {

// One whole line, whatever other threads print.
template <typename... T>
void complain(fmt::format_string<T...> format, T&&... values) {
  const std::string line = fmt::format(format, std::forward<T>(values)...);
  fmt::print(stderr, "ddp-rping: {}\n", line);
}

// With -d only.
template <typename... T>
void tell(const Options& options, fmt::format_string<T...> format, T&&... values) {
  if (options.is_debug) complain(format, std::forward<T>(values)...);
}

// "MPA revision 2, CRC on, IRD 1, ORD 1"
inline std::string to_text(const mpa::Agreement& a) {
  return fmt::format("MPA revision {}, CRC {}, IRD {}, ORD {}{}{}", a.revision,
                     a.has_crc ? "on" : "off", a.ird, a.ord,
                     a.rtr == mpa::Rtr::kNone ? "" : ", peer to peer",
                     a.send_markers ? ", Markers sent" : "");
}

}  // namespace ddpsock::rping

#endif  // DDPSOCK_TOOLS_RPING_LOG_H_
