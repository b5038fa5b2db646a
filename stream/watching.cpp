// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "stream/watching.h"

#include <algorithm>
#include <array>

#include "base/keep_errno.h"
#include "base/process.h"

namespace ddpsock::engine {
namespace {

using Carrier = Observer::Carrier;

}  // namespace

Named name_of(const Connection& c) {
  return {.local = c.r.local,
          .remote = c.r.remote,
          .fd = c.r.opened_as,
          .is_initiator = c.r.role == Role::kInitiator,
          .has_crc = c.r.has_crc,
          .revision = c.r.has_peer_revision ? c.r.peer_revision : uint8_t{MPA_REVISION_ENHANCED}};
}

void tell_sent(Connection& c, Bytes fpdus) {
  const Named who = name_of(c);
  while (fpdus.size() >= kChunkHeader) {
    const size_t size = std::min<size_t>(fpdus.size(), fpdu_size(base::load_be16(fpdus.data())));
    const Bytes fpdu = fpdus.first(size);
    observer->moved(who, c.watched, Observer::Way::kSent, Carrier::kSocket, {&fpdu, 1});
    fpdus = fpdus.subspan(size);
  }
}

void tell_sent_pieces(Connection& c, std::span<const Bytes> fpdu) {
  observer->moved(name_of(c), c.watched, Observer::Way::kSent, Carrier::kSocket, fpdu);
}

void tell_received(Connection& c, Bytes fpdu) {
  observer->moved(name_of(c), c.watched, Observer::Way::kReceived, Carrier::kSocket, {&fpdu, 1});
}

void tell_in_memory(Connection& c, Observer::Way way, Bytes payload) {
  const Named who = name_of(c);
  const bool is_sent = way == Observer::Way::kSent;
  // They follow what the wire has carried; a forked child's capture begins anew.
  Connection::ToldMsn& told = is_sent ? c.told_sent : c.told_received;
  if (told.generation != base::process_generation())
    told = {base::process_generation(), is_sent ? c.tx.msn : c.rx.msn};
  while (!payload.empty()) {
    const Bytes part = payload.first(std::min<size_t>(payload.size(), kPreferredPayload));
    const auto size = static_cast<uint32_t>(part.size());
    std::array<uint8_t, kChunkHeader> header;
    std::array<uint8_t, kMaxTrailer + 3> trailer;
    write_chunk_header(header.data(), size, told.msn++);
    const uint32_t crc = base::crc32c_extend(base::crc32c(Bytes(header)), part);
    uint8_t* const end = write_trailer(trailer.data(), chunk_pad(size), crc, c.r.has_crc);
    const std::array<Bytes, 3> fpdu = {
        Bytes(header), part, Bytes(trailer).first(static_cast<size_t>(end - trailer.data()))};
    observer->moved(who, c.watched, way, Carrier::kMemory, fpdu);
    payload = payload.subspan(part.size());
  }
}

void tell_event(Connection& c, Observer::Event event, const char* text, int error) {
  const base::KeepErrno keep;
  observer->happened(name_of(c), c.watched, event, text, error);
}

}  // namespace ddpsock::engine
