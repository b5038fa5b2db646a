// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "engine/user/record.h"

#include <algorithm>
#include <cstring>

#include "engine/user/chunk.h"

namespace ddpsock::engine {

Record::Record(const StreamAttr& attr)
    : role(attr.role),
      peer(attr.peer),
      is_strict(attr.is_strict),
      wants_crc(attr.wants_crc),
      wants_memory(attr.may_share_memory && attr.peer == Peer::kProved),
      max_payload(attr.max_payload != 0 ? std::min(attr.max_payload, kMaxChunkPayload)
                                        : kPreferredPayload),
      start_timeout(attr.start_timeout),
      opened_at(base::now()) {}

void Record::note_failure(const char* why) {
  if (has_failure.load(std::memory_order_acquire)) return;
  const size_t n = std::min(std::strlen(why), failure.size() - 1);
  std::copy_n(why, n, failure.begin());
  has_failure.store(true, std::memory_order_release);
}

}  // namespace ddpsock::engine
