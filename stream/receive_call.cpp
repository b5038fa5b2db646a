// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "stream/receive_call.h"

#include <errno.h>

#include "stream/failure.h"
#include "stream/sleep.h"
#include "stream/watching.h"

namespace ddpsock::engine {

bool ReceiveCall::is_good(const Fpdu& fpdu) {
  if (c.r.has_crc) c.count_crc();
  if (fpdu.is(Fpdu::Verdict::kChunk)) return true;
  if (is_watched()) tell_received(c, {buffer.bytes().data(), fpdu.size});
  error = fail_crc(c, fd);
  return false;
}

void ReceiveCall::accept(const Fpdu& fpdu) {
  if (is_watched()) [[unlikely]]
    tell_received(c, {buffer.bytes().data(), fpdu.size});
  count(fpdu);
  inbox.left = fpdu.payload;
  inbox.skip = fpdu.trailer();
  buffer.drop(kChunkHeader);
}

bool ReceiveCall::prepare_to_sleep() {
  if (must_drop) {
    ++base::effort.waits;
    return true;
  }
  if (!buffer.leave_stack()) return fail_for_memory();
  buffer.put_on_record();
  rx.is_asleep = true;
  ++base::effort.waits;
  return true;
}

void ReceiveCall::wake_up(bool has_taken) {
  if (fd.is_copy()) [[unlikely]] {
    error = EINTR;
    return;
  }
  rx.is_asleep = false;
  if (!has_taken && !wake_fully(rx.is_asleep)) [[unlikely]] {
    error = EINTR;
    return;
  }
  fd.note_sleep();
  look_for_border();
}

bool ReceiveCall::fail_for_memory() {
  error = fail_lost(c, fd, "no memory for received bytes");
  return false;
}

}  // namespace ddpsock::engine
