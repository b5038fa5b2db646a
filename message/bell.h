// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Wakes a thread that sleeps on fd(). A program may close all descriptors that it does not know,
// and what gets their numbers next may be a connection: whoever rings looks first whether it is
// still the bell, which a socket can be asked and an eventfd cannot.
#ifndef DDPSOCK_MESSAGE_BELL_H_
#define DDPSOCK_MESSAGE_BELL_H_

#include <atomic>
#include <cstdint>

namespace ddpsock::message {

// The same number for as long as it is the same socket; 0: it is none.
uint64_t socket_cookie(int fd);

class Bell {
 public:
  // Also to replace one that the program has closed. False: no descriptors.
  bool open();
  // Readable once it has rung. Blocking.
  int fd() const { return inner_.load(); }
  // From any thread. False: it is gone.
  bool ring();
  void drain();

 private:
  std::atomic<int> inner_{-1}, outer_{-1};
  std::atomic<uint64_t> cookie_{0};  // of outer_
};

}  // namespace ddpsock::message

#endif  // DDPSOCK_MESSAGE_BELL_H_
