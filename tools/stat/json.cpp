// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tools/stat/json.h"

#include <fmt/core.h>

#include "tools/stat/text.h"

namespace ddpsock::stat {
namespace {

// {"a":1,"b":"x"}: members in the order of the calls.
class Object {
 public:
  Object& raw(std::string_view name, std::string_view json) {
    text_ += fmt::format("{}\"{}\":{}", text_.size() > 1 ? "," : "", name, json);
    return *this;
  }
  Object& text(std::string_view name, std::string_view value) {
    return raw(name, json_string(value));
  }
  template <typename T>
  Object& number(std::string_view name, T value) {
    return raw(name, fmt::format("{}", value));
  }
  Object& flag(std::string_view name, bool value) { return raw(name, value ? "true" : "false"); }
  std::string end() const { return text_ + "}"; }

 private:
  std::string text_ = "{";
};

template <typename Items, typename F>
std::string list_of(const Items& items, F to_text) {
  std::string text = "[";
  for (const auto& item : items) {
    if (text.size() > 1) text += ",";
    text += to_text(item);
  }
  return text + "]";
}

std::string number_or_null(std::optional<uint64_t> value) {
  return value ? fmt::format("{}", *value) : "null";
}

// null: not counted in message mode.
std::string direction(const engine::DirectionStatistics& d, bool is_message,
                      std::optional<uint64_t> bells = {}) {
  const auto of_stream = [is_message](uint64_t value) {
    return is_message ? std::string("null") : fmt::format("{}", value);
  };
  Object object;
  object.number("bytes", d.bytes)
      .number("fpdus", d.fpdus)
      .raw("bytes_copied", of_stream(d.bytes_copied));
  if (bells) object.raw("bells_rung", of_stream(*bells));
  return object.raw("system_calls", of_stream(d.system_calls))
      .raw("waits", of_stream(d.waits))
      .raw("spins", of_stream(d.spins))
      .raw("vain_spins", of_stream(d.vain_spins))
      .number("errors", d.errors)
      .end();
}

std::string work(const engine::WorkStatistics& w) {
  return Object()
      .number("posted", w.posted)
      .number("completed", w.completed)
      .number("outstanding", w.outstanding())
      .number("failed", w.failed)
      .end();
}

std::string messages(const engine::ConnectionStatistics& d) {
  if (!d.is_message) return "null";
  return Object()
      .text("progress", d.progress)
      .raw("sends", work(d.sends))
      .raw("receives", work(d.receives))
      .raw("terminate", d.terminate != 0 ? fmt::format("{}", d.terminate) : "null")
      .end();
}

const char* state_of(const engine::ConnectionStatistics& d) {
  switch (d.state) {
    case engine::ConnectionState::kStarting:
      return "starting";
    case engine::ConnectionState::kOpen:
      return "open";
    case engine::ConnectionState::kFailed:
      return "failed";
    case engine::ConnectionState::kEnded:
      return "ended";
  }
  return "";
}

std::string connection(const Connection& c) {
  const engine::ConnectionStatistics& d = c.data;
  return Object()
      .number("pid", c.pid)
      .text("program", c.program)
      .raw("holders", list_of(c.holders, [](int pid) { return fmt::format("{}", pid); }))
      .number("descriptor", d.opened_as)
      .text("local", address_text(d.local))
      .text("peer", address_text(d.remote))
      .text("role", d.is_initiator ? "initiator" : "responder")
      .text("mode", d.is_message ? "message" : "stream")
      .text("engine", c.engine())
      .text("state", state_of(d))
      .text("verdict", d.failure.empty() ? "ddp" : "failed")
      .text("reason", d.failure.empty() ? d.verdict : d.failure)
      .text("memory", d.memory)
      .flag("is_proved", d.is_proved)
      .number("mpa_revision", d.mpa_revision)
      .flag("has_crc", d.has_crc)
      .number("max_payload", d.max_payload)
      .number("crcs_checked", d.crcs_checked)
      .raw("sent", direction(d.sent, d.is_message, d.bells_rung))
      .raw("received", direction(d.received, d.is_message))
      .raw("messages", messages(d))
      .raw("ring_to_read", d.is_in_memory ? number_or_null(c.ring_to_read) : "null")
      .raw("ring_to_peer", d.is_in_memory ? number_or_null(c.ring_to_peer) : "null")
      .end();
}

std::string process(const ProcessRow& p) {
  return Object()
      .number("pid", p.pid)
      .text("program", p.program)
      .number("connections", p.connections)
      .number("plain", p.plain)
      .text("plain_reason", p.plain_reason)
      .text("obstacle", p.obstacle)
      .end();
}

}  // namespace

std::string to_json(const Snapshot& s) {
  return Object()
      .raw("time", fmt::format("{}.{:03}", s.unix_ms / 1000, s.unix_ms % 1000))
      .raw("processes", list_of(s.processes, process))
      .raw("connections", list_of(s.connections, connection))
      .number("hidden", s.hidden)
      .end();
}

}  // namespace ddpsock::stat
