// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Stands in for a part that is not built yet: no engine opens a stream.
#include <errno.h>

#include "engine/stream.h"

namespace ddpsock {
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
