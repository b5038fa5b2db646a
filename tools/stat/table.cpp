// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tools/stat/table.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <span>

#include "tools/stat/text.h"

namespace ddpsock::stat {
namespace {

constexpr size_t kMostProgram = 15;  // what the kernel keeps of a name
constexpr size_t kLeastWhy = 24;

// What changed since another snapshot, per second.
class Rates {
 public:
  Rates(const Snapshot& now, const Snapshot* before) {
    if (before == nullptr) return;
    seconds_ = static_cast<double>((now.at - before->at).ns) / 1e9;
    for (const Connection& c : before->connections) before_[c.key] = &c.data;
  }
  bool is_on() const { return seconds_ > 0; }
  // nullopt: not there before.
  std::optional<uint64_t> of(const Connection& c,
                             uint64_t (*value)(const engine::ConnectionStatistics&)) const {
    const auto then = before_.find(c.key);
    if (then == before_.end()) return std::nullopt;
    const uint64_t a = value(*then->second), b = value(c.data);
    if (b < a) return std::nullopt;
    return static_cast<uint64_t>(static_cast<double>(b - a) / seconds_ + 0.5);
  }

 private:
  double seconds_ = 0;
  std::map<ConnectionKey, const engine::ConnectionStatistics*> before_;
};

uint64_t sent(const engine::ConnectionStatistics& c) {
  return c.sent.bytes;
}
uint64_t received(const engine::ConnectionStatistics& c) {
  return c.received.bytes;
}
uint64_t fpdus(const engine::ConnectionStatistics& c) {
  return c.sent.fpdus + c.received.fpdus;
}
uint64_t calls(const engine::ConnectionStatistics& c) {
  return c.sent.system_calls + c.received.system_calls;
}
uint64_t waits(const engine::ConnectionStatistics& c) {
  return c.sent.waits + c.received.waits;
}
uint64_t spins(const engine::ConnectionStatistics& c) {
  return c.sent.spins + c.received.spins;
}
uint64_t copied(const engine::ConnectionStatistics& c) {
  return c.sent.bytes_copied + c.received.bytes_copied;
}
uint64_t errors(const engine::ConnectionStatistics& c) {
  return c.sent.errors + c.received.errors;
}

std::string optional_short(std::optional<uint64_t> value) {
  return value ? in_short(*value) : "-";
}

std::string ring_text(const Connection& c) {
  if (!c.data.is_in_memory) return "-";
  if (!c.ring_to_read || !c.ring_to_peer) return "?";
  return in_short(*c.ring_to_read + *c.ring_to_peer);
}

std::string why(const Connection& c) {
  if (!c.data.failure.empty()) return "failed: " + c.data.failure;
  return c.data.memory + (c.data.memory.empty() ? "" : "; ") + c.data.verdict;
}

// Nobody asks why a healthy connection is as it was wanted.
bool is_worth_a_line(const Connection& c) {
  return !c.data.failure.empty();
}

struct Column {
  std::string title;
  bool is_left = false;
  int rank = 0;  // the lowest is kept longest
  std::function<std::string(const Connection&)> text;
};

std::vector<Column> columns_for(const Rates& rates) {
  using engine::ConnectionStatistics;
  const auto amount = [&rates](std::string title, int rank,
                               uint64_t (*value)(const ConnectionStatistics&)) {
    const auto text = [&rates, value](const Connection& c) {
      return rates.is_on() ? optional_short(rates.of(c, value)) : in_short(value(c.data));
    };
    return Column{rates.is_on() ? title + "/s" : title, false, rank, text};
  };
  // What message mode does not count.
  const auto of_stream = [](Column column) {
    column.text = [text = std::move(column.text)](const Connection& c) {
      return c.data.is_message ? "-" : text(c);
    };
    return column;
  };
  const auto local = [](const Connection& c) {
    const std::string host = host_text(c.data.local);
    return host != "?" && host == host_text(c.data.remote) ? fmt::format(":{}", c.data.local.port)
                                                           : address_text(c.data.local);
  };
  return {
      {"PROGRAM", true, 0, [](const Connection& c) { return c.program; }},
      {"PID", false, 0, [](const Connection& c) { return fmt::format("{}", c.pid); }},
      {"LOCAL", true, 0, local},
      {"PEER", true, 0, [](const Connection& c) { return address_text(c.data.remote); }},
      {"MODE", true, 10,
       [](const Connection& c) { return c.data.is_message ? "message" : "stream"; }},
      {"ENGINE", true, 1, [](const Connection& c) { return c.engine(); }},
      amount("SENT", 1, sent),
      amount("RECV", 1, received),
      {"RING", false, 2, ring_text},
      amount("FPDUS", 6, fpdus),
      of_stream(amount("COPIED", 9, copied)),
      of_stream(amount("CALLS", 4, calls)),
      of_stream(amount("WAITS", 7, waits)),
      of_stream(amount("SPINS", 8, spins)),
      of_stream(
          {"BELLS", false, 5, [](const Connection& c) { return in_short(c.data.bells_rung); }}),
      {"ERR", false, 3, [](const Connection& c) { return in_short(errors(c.data)); }},
      {"WHY", true, 11, why},
  };
}

// The texts of all rows, the header first, and how wide each column is.
class Grid {
 public:
  Grid(const Snapshot& snapshot, const Rates& rates) : columns_(columns_for(rates)) {
    for (const Column& column : columns_) {
      std::vector<std::string> texts{column.title};
      size_t width = column.title.size();
      for (const Connection& c : snapshot.connections) {
        texts.push_back(printable(column.text(c)));
        width = std::max(width, columns_of(texts.back()));
      }
      widths_.push_back(column.title == "PROGRAM" ? std::min(width, kMostProgram) : width);
      texts_.push_back(std::move(texts));
    }
  }

  // Drops what does not fit, the highest rank first.
  void fit(size_t room) {
    for (int rank = 11; rank > 0 && total() > room; --rank) {
      for (size_t i = columns_.size(); i-- > 0;) {
        if (columns_[i].rank != rank) continue;
        const size_t others = total() - widths_[i];
        if (columns_[i].title == "WHY" && others + kLeastWhy <= room) {
          widths_[i] = room - others;
        } else {
          columns_.erase(columns_.begin() + static_cast<ptrdiff_t>(i));
          widths_.erase(widths_.begin() + static_cast<ptrdiff_t>(i));
          texts_.erase(texts_.begin() + static_cast<ptrdiff_t>(i));
        }
        break;
      }
    }
  }
  bool has(std::string_view title) const {
    return std::ranges::find(columns_, title, &Column::title) != columns_.end();
  }
  std::string line(size_t row) const {
    std::string line;
    for (size_t i = 0; i < columns_.size(); ++i) {
      const std::string text = cut(texts_[i][row], widths_[i]);
      const std::string blank(widths_[i] - columns_of(text), ' ');
      if (i > 0) line += ' ';
      line += columns_[i].is_left ? text + blank : blank + text;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    return line;
  }

 private:
  size_t total() const {
    size_t sum = widths_.empty() ? 0 : widths_.size() - 1;
    for (const size_t w : widths_) sum += w;
    return sum;
  }

  std::vector<Column> columns_;
  std::vector<size_t> widths_;
  std::vector<std::vector<std::string>> texts_;  // by column, then row
};

std::string counted(size_t n, const char* one, const char* more) {
  return fmt::format("{} {}", n, n == 1 ? one : more);
}

std::string summary(const Snapshot& s) {
  if (s.processes.empty()) return "no process of this user runs with ddpsock";
  std::string text = counted(s.processes.size(), "process", "processes") + " with ddpsock, " +
                     counted(s.connections.size(), "connection", "connections");
  const auto in_memory =
      std::ranges::count_if(s.connections, [](const Connection& c) { return c.engine() == "shm"; });
  if (!s.connections.empty())
    text += fmt::format(" ({} shm, {} user)", in_memory,
                        static_cast<ptrdiff_t>(s.connections.size()) - in_memory);
  return text;
}

// Processes that need a word beside their connections.
std::vector<std::string> remarks(const Snapshot& s) {
  std::vector<std::string> lines;
  for (const ProcessRow& p : s.processes) {
    std::string text;
    if (!p.obstacle.empty()) {
      text = p.obstacle;
    } else if (p.connections == 0) {
      text = "no connection in DDPMODE";
      if (p.plain == 0 && !p.plain_reason.empty()) text += ": " + p.plain_reason;
    }
    if (p.plain > 0)
      text += fmt::format("{}{} plain so far, the last: {}", text.empty() ? "" : "; ", p.plain,
                          p.plain_reason);
    if (!text.empty())
      lines.push_back(fmt::format("{} {}: {}", printable(p.program), p.pid, printable(text)));
  }
  if (s.hidden > 0)
    lines.push_back(counted(static_cast<size_t>(s.hidden), "process", "processes") +
                    " of this user cannot be looked at");
  return lines;
}

void append(std::vector<std::string>& lines, std::vector<std::string> more) {
  for (std::string& line : more) lines.push_back(std::move(line));
}

struct Pair {
  const char* name;
  uint64_t engine::DirectionStatistics::* value;
};

std::vector<std::string> detail(const Connection& c, const Rates& rates) {
  const engine::ConnectionStatistics& d = c.data;
  std::vector<std::string> lines;
  const auto add = [&]<typename... T>(fmt::format_string<T...> format, T&&... values) {
    lines.push_back(fmt::format(format, std::forward<T>(values)...));
  };
  add("{} {}, descriptor {}: {} {} {}", printable(c.program), c.pid, d.opened_as,
      address_text(d.local), d.is_initiator ? "->" : "<-", address_text(d.remote));
  const char* state = d.state == engine::ConnectionState::kOpen       ? "open"
                      : d.state == engine::ConnectionState::kStarting ? "starting"
                      : d.state == engine::ConnectionState::kEnded    ? "ended"
                                                                      : "failed";
  add("  state     {}{}{}", state, d.failure.empty() ? "" : ": ", printable(d.failure));
  add("  mode      {}; {}{}", d.is_message ? "message" : "stream", printable(d.verdict),
      d.is_proved ? " (proved)" : "");
  add("  engine    {}; {}", printable(c.engine()), printable(d.memory));
  if (d.is_message) add("  progress  {}", printable(d.progress));
  if (d.is_in_memory) {
    if (c.ring_to_read && c.ring_to_peer) {
      add("  rings     {} bytes for this end to read, {} for the peer", *c.ring_to_read,
          *c.ring_to_peer);
    } else {
      add("  rings     not known: the peer's statistics are not to be seen");
    }
  }
  const std::string revision =
      d.mpa_revision != 0 ? fmt::format("revision {}", d.mpa_revision) : "peer not heard yet";
  add("  MPA       {}, {}, up to {} bytes an FPDU", revision, d.has_crc ? "CRC" : "no CRC",
      d.max_payload);
  std::string holders;
  for (const int pid : c.holders) holders += fmt::format(" {}", pid);
  add("  held by  {}", holders);
  add("  {:<20} {:>20} {:>20}", "", "sent", "received");
  using D = engine::DirectionStatistics;
  constexpr Pair kPairs[] = {{"bytes", &D::bytes},
                             {"FPDUs", &D::fpdus},
                             {"bytes copied", &D::bytes_copied},
                             {"system calls", &D::system_calls},
                             {"waits", &D::waits},
                             {"spins", &D::spins},
                             {"  in vain", &D::vain_spins},
                             {"errors", &D::errors}};
  for (const Pair& pair : std::span(kPairs).first(d.is_message ? 2 : std::size(kPairs)))
    add("  {:<20} {:>20} {:>20}", pair.name, d.sent.*pair.value, d.received.*pair.value);
  if (!d.is_message) add("  {:<20} {:>20}", "bells rung", d.bells_rung);
  add("  {:<20} {:>20} {:>20}", "CRCs checked", "", d.crcs_checked);
  if (d.is_message) {
    add("  {:<20} {:>20} {:>20}", "requests posted", d.sends.posted, d.receives.posted);
    add("  {:<20} {:>20} {:>20}", "  completed", d.sends.completed, d.receives.completed);
    add("  {:<20} {:>20} {:>20}", "  outstanding", d.sends.outstanding(), d.receives.outstanding());
    add("  {:<20} {:>20} {:>20}", "  failed", d.sends.failed, d.receives.failed);
    if (d.terminate != 0)
      add("  Terminate layer {}, type {}, code {}", d.terminate >> 16 & 0xff,
          d.terminate >> 8 & 0xff, d.terminate & 0xff);
  }
  if (rates.is_on())
    add("  {:<20} {:>20} {:>20}", "bytes a second", optional_short(rates.of(c, sent)),
        optional_short(rates.of(c, received)));
  return lines;
}

}  // namespace

std::vector<std::string> table(const Snapshot& now, const Snapshot* before, size_t width,
                               size_t height) {
  std::vector<std::string> lines{summary(now)};
  std::vector<std::string> last = remarks(now);
  if (!now.connections.empty()) {
    const Rates rates(now, before);
    Grid grid(now, rates);
    grid.fit(width);
    const bool has_why = grid.has("WHY");
    lines.push_back(grid.line(0));
    for (size_t i = 0; i < now.connections.size(); ++i) {
      lines.push_back(grid.line(i + 1));
      if (!has_why && is_worth_a_line(now.connections[i]))
        lines.push_back("    " + printable(why(now.connections[i])));
    }
  }
  append(lines, std::move(last));
  for (std::string& line : lines) line = cut(line, width);
  if (height != kUnlimited && lines.size() > height) {
    const size_t kept = std::max<size_t>(height, 1) - 1;
    const size_t left = lines.size() - kept;
    lines.resize(kept);
    lines.push_back(cut(fmt::format("... and {} more lines", left), width));
  }
  return lines;
}

std::vector<std::string> details(const Snapshot& now, const Snapshot* before) {
  const Rates rates(now, before);
  std::vector<std::string> lines{summary(now)};
  for (const Connection& c : now.connections) {
    lines.emplace_back();
    append(lines, detail(c, rates));
  }
  std::vector<std::string> last = remarks(now);
  if (!last.empty()) lines.emplace_back();
  append(lines, std::move(last));
  return lines;
}

}  // namespace ddpsock::stat
