// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Stands in for parts that are not built yet: no policy chooses a socket, no engine opens a stream.
#include <errno.h>

#include "engine/stream.h"
#include "shim/policy.h"

namespace ddpsock {
namespace shim {

namespace {
constexpr Verdict kNothingChosen{.reason = "built without a policy"};
}

bool is_policy_active() {
  return false;
}
Verdict before_connect(int, const sockaddr*, socklen_t, Wish) {
  return kNothingChosen;
}
Verdict after_connect(int, const Verdict& before) {
  return before;
}
void after_listen(int, Wish) {}
void forget_listener(int) {}
Verdict after_accept(int, int, Wish) {
  return kNothingChosen;
}

}  // namespace shim

namespace engine {
namespace {

class NoEngine final : public StreamEngine {
 public:
  Result<Stream*> open(int, const StreamAttr&) override { return fail_errno(ENOSYS); }
  const char* name() const override { return "none"; }
};
constinit NoEngine no_engine;

}  // namespace

StreamEngine& user_stream_engine() {
  return no_engine;
}

}  // namespace engine
}  // namespace ddpsock
