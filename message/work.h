// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Requests and completions between the program's structures and the engine's.
#ifndef DDPSOCK_MESSAGE_WORK_H_
#define DDPSOCK_MESSAGE_WORK_H_

#include <array>

#include "ddpsock/ddpsock.h"
#include "engine/engine.h"

namespace ddpsock::message {

class Endpoint;

// How many of a post were taken, and the errno for the next one (0: there was none).
struct Accepted {
  unsigned count = 0;
  int why = 0;
};

// The iovecs of a few requests as the engine wants them.
inline constexpr unsigned kBatch = 16;
template <typename Range>
struct Slices {
  Slices() {}  // NOLINT: what read() has not written is not looked at
  union {
    std::array<Range, DDP_MAX_SLICES> ranges;
  };
  unsigned count = 0;
  // E2BIG, EFAULT; 0.
  int read(const iovec* from, unsigned from_count);
  std::span<const Range> get() const { return std::span(ranges).first(count); }
};
using GatherSlices = Slices<Bytes>;
using ScatterSlices = Slices<MutBytes>;

// Each: 0, or the errno that refuses the request. `to` borrows `slices`.
int read_work(const ddp_send_work& from, GatherSlices& slices, engine::SendWr& to);
int read_work(const ddp_write_work& from, GatherSlices& slices, engine::SendWr& to);
int read_work(const ddp_read_work& from, GatherSlices& slices, engine::SendWr& to);
int read_work(const ddp_atomic_work& from, GatherSlices& slices, engine::SendWr& to);
int read_work(const ddp_recv_work& from, ScatterSlices& slices, engine::RecvWr& to);

// EBADF where it is not in a state for it.
int errno_of(engine::Refusal reason);
// What a queue pair has told of `endpoint`'s work.
void translate(const engine::Completion& from, const Endpoint& endpoint, ddp_completion& to);
ddp_kind kind_of(engine::WorkKind kind);
uint32_t terminate_word(engine::TermCode code);
const char* describe(const ddp_completion& completion);

}  // namespace ddpsock::message

#endif  // DDPSOCK_MESSAGE_WORK_H_
