// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The terminal while ddpstat watches: a screen of its own, drawn over in place, and given back
// whatever ends it. On anything but a terminal, text after text.
#ifndef DDPSOCK_TOOLS_STAT_SCREEN_H_
#define DDPSOCK_TOOLS_STAT_SCREEN_H_

#include <signal.h>

#include <cstddef>
#include <string>
#include <vector>

#include "base/clock.h"

namespace ddpsock::stat {

struct ScreenSize {
  size_t columns, rows;
};
// Of standard output; kUnlimited both ways if that is no terminal.
ScreenSize screen_size();

// All lines to standard output. False: it takes no more, errno says why.
bool print_lines(const std::vector<std::string>& lines);

class Screen {
 public:
  // Signals that end or resize are from now on taken by wait(), and SIGPIPE is ignored. Without
  // `has_screen` lines follow one another, on a terminal too.
  explicit Screen(bool has_screen);
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  bool draw(const std::vector<std::string>& lines);

  enum class Wake { kTime, kResized, kEnd };
  // Until `until`, or a signal. Stops the process and starts it again where job control says so.
  Wake wait(Time until);

 private:
  void enter();
  void leave();

  bool is_terminal_;
  bool has_gaps_;
  bool is_first_ = true;
  sigset_t signals_, before_;
};

}  // namespace ddpsock::stat

#endif  // DDPSOCK_TOOLS_STAT_SCREEN_H_
