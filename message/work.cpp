// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "message/work.h"

#include <cerrno>

#include "message/endpoint.h"

namespace ddpsock::message {
namespace {

constexpr uint32_t kCommonFlags = DDP_SILENT | DDP_FENCE | DDP_MORE;
constexpr uint32_t kSendFlags =
    kCommonFlags | DDP_INLINE | DDP_SOLICITED | DDP_INVALIDATE | DDP_IMMEDIATE;
constexpr uint32_t kWriteFlags = kCommonFlags | DDP_INLINE;

static_assert(DDP_MAX_SLICES == ddp::kMaxSlices);
static_assert(DDP_MAX_INLINE == rdmap::kMaxInline);

void read_common(uint64_t cookie, uint32_t flags, engine::SendWr& to) {
  to.id = cookie;
  to.is_signalled = (flags & DDP_SILENT) == 0;
  to.has_fence = (flags & DDP_FENCE) != 0;
  to.is_inline = (flags & DDP_INLINE) != 0;
}

Bytes make_range(const iovec& part, Bytes) {
  return {static_cast<const uint8_t*>(part.iov_base), part.iov_len};
}
MutBytes make_range(const iovec& part, MutBytes) {
  return {static_cast<uint8_t*>(part.iov_base), part.iov_len};
}

}  // namespace

template <typename Range>
int Slices<Range>::read(const iovec* from, unsigned from_count) {
  count = 0;
  if (from == nullptr && from_count != 0) return EFAULT;
  for (unsigned i = 0; i < from_count; ++i) {
    if (from[i].iov_len == 0) continue;
    if (count == ranges.size()) return E2BIG;
    ranges[count++] = make_range(from[i], Range{});
  }
  return 0;
}
template struct Slices<Bytes>;
template struct Slices<MutBytes>;

int read_work(const ddp_send_work& from, GatherSlices& slices, engine::SendWr& to) {
  if ((from.flags & ~kSendFlags) != 0 || from.reserved != 0) return EINVAL;
  read_common(from.cookie, from.flags, to);
  const bool is_solicited = (from.flags & DDP_SOLICITED) != 0;
  const bool has_invalidate = (from.flags & DDP_INVALIDATE) != 0;
  if ((from.flags & DDP_IMMEDIATE) != 0) {
    if (has_invalidate || from.iov_count != 0) return EINVAL;
    to.op = engine::op::Immediate{.value = from.immediate, .is_solicited = is_solicited};
    return 0;
  }
  const int error = slices.read(from.iov, from.iov_count);
  if (error != 0) return error;
  engine::op::Send send{.payload = slices.get(), .is_solicited = is_solicited};
  if (has_invalidate) send.invalidate = from.invalidate;
  to.op = send;
  return 0;
}

int read_work(const ddp_write_work& from, GatherSlices& slices, engine::SendWr& to) {
  if ((from.flags & ~kWriteFlags) != 0 || from.reserved != 0) return EINVAL;
  read_common(from.cookie, from.flags, to);
  const int error = slices.read(from.iov, from.iov_count);
  to.op =
      engine::op::Write{.payload = slices.get(), .stag = from.remote_stag, .to = from.remote_to};
  return error;
}

int read_work(const ddp_read_work& from, GatherSlices&, engine::SendWr& to) {
  if ((from.flags & ~kCommonFlags) != 0) return EINVAL;
  read_common(from.cookie, from.flags, to);
  to.op = engine::op::Read{.sink_stag = from.stag,
                           .sink_to = reinterpret_cast<uint64_t>(from.address),
                           .length = from.length,
                           .stag = from.remote_stag,
                           .to = from.remote_to};
  return 0;
}

int read_work(const ddp_atomic_work& from, GatherSlices&, engine::SendWr& to) {
  if ((from.flags & ~kCommonFlags) != 0 || from.reserved != 0) return EINVAL;
  read_common(from.cookie, from.flags, to);
  switch (from.operation) {
    case DDP_FETCH_ADD:
      to.op =
          engine::op::FetchAdd{.stag = from.remote_stag, .to = from.remote_to, .add = from.operand};
      return 0;
    case DDP_SWAP:
      to.op =
          engine::op::Swap{.stag = from.remote_stag, .to = from.remote_to, .value = from.operand};
      return 0;
    case DDP_COMPARE_SWAP:
      to.op = engine::op::CmpSwap{.stag = from.remote_stag,
                                  .to = from.remote_to,
                                  .compare = from.compare,
                                  .swap = from.operand};
      return 0;
    default:
      return EINVAL;
  }
}

int read_work(const ddp_recv_work& from, ScatterSlices& slices, engine::RecvWr& to) {
  if (from.reserved != 0) return EINVAL;
  const int error = slices.read(from.iov, from.iov_count);
  to = {.id = from.cookie, .buffer = slices.get()};
  return error;
}

int errno_of(engine::Refusal reason) {
  switch (reason) {
    case engine::Refusal::kNone:
      return 0;
    case engine::Refusal::kQueueFull:
    case engine::Refusal::kCqFull:
      return EAGAIN;
    case engine::Refusal::kBadState:
      break;
    case engine::Refusal::kTooManySlices:
      return E2BIG;
    case engine::Refusal::kTooLong:
      return EMSGSIZE;
    case engine::Refusal::kBadSink:
      return EACCES;
    case engine::Refusal::kNoReadsAllowed:
      return ENOTSUP;
  }
  return EBADF;
}

ddp_kind kind_of(engine::WorkKind kind) {
  switch (kind) {
    case engine::WorkKind::kSend:
    case engine::WorkKind::kImmediate:
    case engine::WorkKind::kLocalInvalidate:
      return DDP_SENT;
    case engine::WorkKind::kWrite:
      return DDP_WRITTEN;
    case engine::WorkKind::kRead:
      return DDP_READ;
    case engine::WorkKind::kFetchAdd:
    case engine::WorkKind::kSwap:
    case engine::WorkKind::kCmpSwap:
      return DDP_ATOMIC_DONE;
    case engine::WorkKind::kReceive:
      break;
  }
  return DDP_RECEIVED;
}

void translate(const engine::Completion& from, const Endpoint& endpoint, ddp_completion& to) {
  to = {};
  to.cookie = from.id;
  to.fd = endpoint.fd();
  to.kind = kind_of(from.kind);
  to.bytes = from.length;
  to.value = from.immediate.value_or(from.original);
  if (from.is_solicited) to.flags |= DDP_SOLICITED;
  if (from.immediate) to.flags |= DDP_IMMEDIATE;
  if (from.invalidated_stag) {
    to.flags |= DDP_INVALIDATE;
    to.stag = *from.invalidated_stag;
  }
  if (from.status == engine::WorkStatus::kOk) return;
  to.status = ECANCELED;
  to.terminate = endpoint.end_terminate();
}

uint32_t terminate_word(engine::TermCode code) {
  return 1u << 24 | uint32_t{code.layer} << 16 | uint32_t{code.etype} << 8 | code.code;
}

const char* describe(const ddp_completion& completion) {
  switch (completion.status) {
    case 0:
      return completion.kind == DDP_ENDED ? "closed" : "done";
    case EREMOTEIO:
    case EPROTO:
      if (completion.terminate == 0) return "MPA start-up failed";
      break;
    case ECANCELED:
      if (completion.terminate == 0) return "the connection ended before this was done";
      break;
    case ECONNRESET:
      return "the connection was lost, or closed with work outstanding";
    case ECONNREFUSED:
      return "refused by the peer";
    case ETIMEDOUT:
      return "the peer did not answer in time";
    default:
      return "failed";
  }
  return rdmap::to_string({.layer = static_cast<uint8_t>(completion.terminate >> 16),
                           .etype = static_cast<uint8_t>(completion.terminate >> 8),
                           .code = static_cast<uint8_t>(completion.terminate)});
}

}  // namespace ddpsock::message
