// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Numbers, addresses and other people's words, as people and as JSON read them.
#ifndef DDPSOCK_TOOLS_STAT_TEXT_H_
#define DDPSOCK_TOOLS_STAT_TEXT_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "relatives/arena_view.h"

namespace ddpsock::stat {

// At most five characters: 999, 1.23K, 45.6M; K is 1024.
std::string in_short(uint64_t value);

// 127.0.0.1:7000, [::1]:7000; "?" if not known. An IPv4 address mapped to IPv6 is shown as IPv4.
std::string address_text(const engine::AddressView& address);
std::string host_text(const engine::AddressView& address);

// Program names and reasons are what any process of this user wrote: nothing of them may move the
// cursor. What is not printable or not UTF-8 becomes '?'.
std::string printable(std::string_view text);

// With its quotes. What is not UTF-8 becomes U+FFFD.
std::string json_string(std::string_view text);

// Columns that `text`, printable() UTF-8, takes; cut to `width` of them.
size_t columns_of(std::string_view text);
std::string cut(std::string_view text, size_t width);

}  // namespace ddpsock::stat

#endif  // DDPSOCK_TOOLS_STAT_TEXT_H_
