// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// libc writes to descriptor 2 by calls of its own, past any preload: what syslog() says of
// LOG_PERROR, and herror(). Where that is a stream the same text goes its way.
#include <errno.h>
#include <netdb.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

#include "base/keep_errno.h"
#include "shim/calls.h"
#include "shim/fd_table.h"
#include "shim/real.h"

// libc's; its header declares it only to programs compiled with fortification.
extern "C" int __vsnprintf_chk(char* text, size_t size, int flag, size_t room, const char* format,
                               va_list arguments);

namespace ddpsock::shim {
namespace {

// What openlog() was told last. libc knows of LOG_PERROR unless `is_masked`.
constinit std::atomic<const char*> tag{nullptr};
constinit std::atomic<int> options{0}, facility{0};
constinit std::atomic<bool> is_masked{false};

void tell_libc(bool mask) {
  is_masked.store(mask, std::memory_order_relaxed);
  const int all = options.load(std::memory_order_relaxed);
  real.openlog(tag.load(std::memory_order_relaxed), mask ? all & ~LOG_PERROR : all,
               facility.load(std::memory_order_relaxed));
}

void say(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  if (is_ours(STDERR_FILENO)) chosen_vdprintf(STDERR_FILENO, format, arguments);
  va_end(arguments);
}

// format_into(room, size) -> length.
template <typename FormatInto>
void say_line(FormatInto format_into) {
  const base::KeepErrno keep;
  const int cause = errno;  // %m
  char small[1024];
  const int length = format_into(small, sizeof small);
  if (length < 0) return;
  const auto size = static_cast<size_t>(length) + 1;
  char* const text = size <= sizeof small ? small : static_cast<char*>(malloc(size));
  if (text == nullptr) return;
  errno = cause;
  if (text != small) format_into(text, size);
  const char* name = tag.load(std::memory_order_relaxed);
  if (name == nullptr) name = program_invocation_short_name;
  const char* end = length > 0 && text[length - 1] == '\n' ? "" : "\n";
  if ((options.load(std::memory_order_relaxed) & LOG_PID) != 0)
    say("%s[%d]: %s%s", name, getpid(), text, end);
  else
    say("%s: %s%s", name, text, end);
  if (text != small) free(text);
}

// Before libc has its turn, as it does it itself.
template <typename FormatInto>
void say_to_stderr(int priority, FormatInto format_into) {
  if ((options.load(std::memory_order_relaxed) & LOG_PERROR) == 0) [[likely]]
    return;
  const bool is_stream = is_ours(STDERR_FILENO);
  if (is_stream != is_masked.load(std::memory_order_relaxed)) tell_libc(is_stream);
  if (is_stream && (LOG_MASK(LOG_PRI(priority)) & setlogmask(0)) != 0) say_line(format_into);
}

}  // namespace

void own_openlog(const char* ident, int option, int wanted) {
  if (ident != nullptr) tag.store(ident, std::memory_order_relaxed);
  options.store(option, std::memory_order_relaxed);
  facility.store(wanted, std::memory_order_relaxed);
  is_masked.store(false, std::memory_order_relaxed);
  real.openlog(ident, option, wanted);
}

// libc forgets the name, and nothing else.
void own_closelog() {
  tag.store(nullptr, std::memory_order_relaxed);
  real.closelog();
}

void own_vsyslog(int priority, const char* format, va_list arguments) {
  say_to_stderr(priority, [&](char* room, size_t size) {
    va_list again;
    va_copy(again, arguments);
    const int length = vsnprintf(room, size, format, again);
    va_end(again);
    return length;
  });
  real.vsyslog(priority, format, arguments);
}

void own_vsyslog_chk(int priority, int flag, const char* format, va_list arguments) {
  say_to_stderr(priority, [&](char* room, size_t size) {
    va_list again;
    va_copy(again, arguments);
    const int length = __vsnprintf_chk(room, size, flag, size, format, again);
    va_end(again);
    return length;
  });
  real.vsyslog_chk(priority, flag, format, arguments);
}

void own_syslog(int priority, const char* format, va_list rest) {
  own_vsyslog(priority, format, rest);
}

void own_syslog_chk(int priority, int flag, const char* format, va_list rest) {
  own_vsyslog_chk(priority, flag, format, rest);
}

void own_herror(const char* text) {
  if (!is_ours(STDERR_FILENO)) return real.herror(text);
  const bool has_text = text != nullptr && *text != '\0';
  say("%s%s%s\n", has_text ? text : "", has_text ? ": " : "", hstrerror(h_errno));
}

}  // namespace ddpsock::shim
