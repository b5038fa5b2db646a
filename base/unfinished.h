// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What a call has to give back also if it never returns: a signal handler may jump out of it
// (siglongjmp), and then no destructor runs.
#ifndef DDPSOCK_BASE_UNFINISHED_H_
#define DDPSOCK_BASE_UNFINISHED_H_

#include <atomic>

namespace ddpsock::base {

class Unfinished;
[[gnu::tls_model("initial-exec")]] extern thread_local constinit Unfinished* innermost_unfinished;

// Lies on the stack of the call, as a base of what gives back. One thread's are a chain, which
// signal handlers lengthen and shorten as they come and go.
class Unfinished {
 public:
  // `abandon` is called at most once, instead of the destructor, in the thread that jumps.
  explicit Unfinished(void (*abandon)(Unfinished&)) : abandon_(abandon) {}
  ~Unfinished() {
    if (innermost_unfinished == this) [[likely]]
      innermost_unfinished = outer_;
    else
      unlink();
  }
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;

  static Unfinished* innermost_of_thread() { return innermost_unfinished; }
  static Unfinished* const* place_of_innermost() { return &innermost_unfinished; }
  const Unfinished* outer() const { return outer_; }
  // REQUIRES: the innermost.
  void leave() {
    innermost_unfinished = outer_;
    abandon_(*this);
  }

 protected:
  // From here on `abandon` may be called. REQUIRES: all members that it looks at are set.
  void begin() {
    outer_ = innermost_unfinished;
    std::atomic_signal_fence(std::memory_order_release);
    innermost_unfinished = this;
  }
  bool is_alike(const Unfinished& other) const { return abandon_ == other.abandon_; }

 private:
  void unlink();

  void (*abandon_)(Unfinished&);
  Unfinished* outer_ = nullptr;
};

}  // namespace ddpsock::base

#endif  // DDPSOCK_BASE_UNFINISHED_H_
