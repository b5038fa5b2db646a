// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tools/stat/screen.h"

#include <errno.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>

#include "tools/stat/table.h"

namespace ddpsock::stat {
namespace {

constexpr char kEnter[] = "\033[?1049h\033[?25l";  // the other screen, no cursor
constexpr char kLeave[] = "\033[?25h\033[?1049l";
constexpr char kHome[] = "\033[H";
constexpr char kClearLine[] = "\033[K";
constexpr char kClearBelow[] = "\033[J";

bool write_out(const std::string& text) {
  return fwrite(text.data(), 1, text.size(), stdout) == text.size() && fflush(stdout) == 0;
}

}  // namespace

ScreenSize screen_size() {
  winsize size{};
  if (isatty(STDOUT_FILENO) == 0) return {kUnlimited, kUnlimited};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0)
    return {80, 24};
  return {size.ws_col, size.ws_row};
}

bool print_lines(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return write_out(text);
}

Screen::Screen(bool has_screen)
    : is_terminal_(has_screen && isatty(STDOUT_FILENO) != 0), has_gaps_(has_screen) {
  // A reader that goes is the end, not an accident.
  signal(SIGPIPE, SIG_IGN);
  sigemptyset(&signals_);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH})
    sigaddset(&signals_, signal);
  if (is_terminal_) sigaddset(&signals_, SIGTSTP);
  sigprocmask(SIG_BLOCK, &signals_, &before_);
  enter();
}

Screen::~Screen() {
  leave();
  sigprocmask(SIG_SETMASK, &before_, nullptr);
}

void Screen::enter() {
  if (is_terminal_) write_out(kEnter);
}

void Screen::leave() {
  if (is_terminal_) write_out(kLeave);
}

bool Screen::draw(const std::vector<std::string>& lines) {
  if (!is_terminal_) {
    if (has_gaps_ && !is_first_ && !write_out("\n")) return false;
    is_first_ = false;
    return print_lines(lines);
  }
  std::string text = kHome;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) text += "\n";
    text += lines[i] + kClearLine;
  }
  return write_out(text + kClearBelow);
}

Screen::Wake Screen::wait(Time until) {
  for (;;) {
    const Duration left = until - base::now();
    if (left.ns <= 0) return Wake::kTime;
    const timespec ts{left.ns / 1'000'000'000, left.ns % 1'000'000'000};
    switch (sigtimedwait(&signals_, nullptr, &ts)) {
      case -1:
        if (errno == EAGAIN) return Wake::kTime;
        continue;
      case SIGWINCH:
        return Wake::kResized;
      case SIGTSTP:
        leave();
        raise(SIGSTOP);
        enter();
        return Wake::kResized;
      default:
        return Wake::kEnd;
    }
  }
}

}  // namespace ddpsock::stat
