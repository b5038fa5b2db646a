// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/interop/replay/player.h"

#include <algorithm>
#include <array>

#include "mpa/fpdu.h"

namespace ddpsock::interop {
namespace {

using rdmap::Opcode;

constexpr uint32_t kDepth = 64;
// Where STags stand in an FPDU, counted from its length field (RFC 5041 section 4.2, RFC 5040
// section 4.4).
constexpr size_t kTaggedStag = 4;
constexpr size_t kSinkStag = 20;
constexpr size_t kSourceStag = 36;

uint32_t longest(const Direction& direction) {
  size_t most = MPA_MIN_MULPDU;
  for (const Operation& o : direction.operations) {
    const size_t header = o.is_tagged ? DDP_TAGGED_HEADER_SIZE : DDP_UNTAGGED_HEADER_SIZE;
    most = std::max(most, header + o.payload.size());
  }
  return static_cast<uint32_t>(most);
}

// The whole message whose first segment is operation `first`.
Octets message_at(const Direction& direction, size_t first) {
  Octets whole;
  const Opcode opcode = direction.operations[first].opcode;
  for (size_t i = first; i < direction.operations.size(); ++i) {
    const Operation& o = direction.operations[i];
    if (o.opcode != opcode) continue;
    whole.insert(whole.end(), o.payload.begin(), o.payload.end());
    if (o.is_last()) break;
  }
  return whole;
}

}  // namespace

Player::Player(bool is_initiator, uint32_t reads, const Direction& ours, const Direction& theirs)
    : ours_(ours),
      theirs_(theirs),
      stags_(8),
      send_cq_(kDepth),
      recv_cq_(kDepth),
      qp_({.send_depth = kDepth, .recv_depth = kDepth, .max_ird = reads, .max_ord = reads}, stags_,
          send_cq_, recv_cq_) {
  for (const Operation& o : ours_.operations)
    if (o.read) note_access(o.read->sink_stag, o.read->sink_to, o.read->length);
  for (const Operation& o : theirs_.operations) {
    if (o.read) note_access(o.read->source_stag, o.read->source_to, o.read->length);
    if (o.opcode == Opcode::kWrite) note_access(o.tagged.stag, o.tagged.to, o.payload.size());
  }
  make_regions();
  tx_.configure(false, false);
  rx_.configure(false, false);
  qp_.start({.is_initiator = is_initiator, .ird = reads, .ord = reads});
  post_receives();
}

void Player::note_access(uint32_t stag, uint64_t to, uint64_t size) {
  Region& region = regions_[stag];
  region.base = std::min(region.base, to);
  region.end = std::max(region.end, to + size);
}

void Player::make_regions() {
  using namespace rdmap;
  for (auto& [captured, region] : regions_) {
    region.memory.assign(region.end - region.base, 0xa5);
    const auto stag =
        stags_.register_region({.buffer = {region.base, MutBytes(region.memory)},
                                .rights = kLocalRead | kLocalWrite | kRemoteRead | kRemoteWrite});
    region.stag = stag.value_or(0);
  }
}

void Player::post_receives() {
  size_t length = 0;
  for (const Operation& o : theirs_.operations) {
    if (o.opcode != Opcode::kSend) continue;
    length += o.payload.size();
    if (!o.is_last()) continue;
    receives_.emplace_back(length);
    length = 0;
  }
  for (size_t i = 0; i < receives_.size(); ++i) {
    const MutBytes buffer(receives_[i]);
    const rdmap::RecvWr work{.id = i, .buffer = {&buffer, 1}};
    qp_.post_recv({&work, 1});
  }
}

void Player::note_ours() {
  const size_t at = next_ours_++;
  const Operation& o = ours_.operations[at];
  if (o.opcode != Opcode::kReadResponse) {
    if (!is_inside_message_) post(o, message_at(ours_, at));
    is_inside_message_ = !o.is_last();
  }
  advance();
}

void Player::post(const Operation& first, const Octets& payload) {
  payloads_.push_back(std::make_unique<Octets>(payload));
  const Bytes range(*payloads_.back());
  rdmap::SendWr work;
  if (first.read)
    work.op = rdmap::op::Read{.sink_stag = regions_[first.read->sink_stag].stag,
                              .sink_to = first.read->sink_to,
                              .length = first.read->length,
                              .stag = first.read->source_stag,
                              .to = first.read->source_to};
  else if (first.opcode == Opcode::kWrite)
    work.op =
        rdmap::op::Write{.payload = {&range, 1}, .stag = first.tagged.stag, .to = first.tagged.to};
  else
    work.op = rdmap::op::Send{.payload = {&range, 1}};
  qp_.post_send({&work, 1});
}

// What the end had in its memory when the Read came is what it answered.
void Player::fill_source(const rdmap::ReadRequest& read) {
  const std::vector<Operation>& all = ours_.operations;
  while (all[next_response_].opcode != Opcode::kReadResponse) ++next_response_;
  const Octets answer = message_at(ours_, next_response_);
  while (!(all[next_response_].opcode == Opcode::kReadResponse && all[next_response_].is_last()))
    ++next_response_;
  ++next_response_;
  const MutBytes source = memory_at(read.source_stag, read.source_to, read.length);
  std::copy_n(answer.begin(), std::min(answer.size(), source.size()), source.begin());
}

MutBytes Player::memory_at(uint32_t stag, uint64_t to, size_t size) {
  Region& region = regions_[stag];
  return MutBytes(region.memory).subspan(to - region.base, size);
}

void Player::feed_theirs(size_t piece) {
  const Operation& o = theirs_.operations[next_theirs_++];
  if (o.read) fill_source(*o.read);
  const bool is_final = next_theirs_ == theirs_.operations.size();
  const size_t end = is_final ? theirs_.stream.size() : theirs_.operations[next_theirs_].at;
  Octets fpdu(theirs_.stream.begin() + static_cast<ptrdiff_t>(o.at),
              theirs_.stream.begin() + static_cast<ptrdiff_t>(end));
  translate(o, fpdu);
  for (Bytes left(fpdu); !left.empty();) {
    const size_t n = std::min(piece, left.size());
    rx_.consume(qp_, left.first(n));
    left = left.subspan(n);
  }
  if (o.is_tagged) {
    const MutBytes placed = memory_at(o.tagged.stag, o.tagged.to, o.payload.size());
    is_memory_right_ = is_memory_right_ && std::ranges::equal(placed, o.payload);
  }
  advance();
}

// Their FPDU with the STags that memory has here.
void Player::translate(const Operation& o, MutBytes fpdu) const {
  if (o.is_tagged)
    base::store_be32(&fpdu[kTaggedStag], regions_.at(o.tagged.stag).stag);
  else if (o.read)
    base::store_be32(&fpdu[kSourceStag], regions_.at(o.read->source_stag).stag);
}

void Player::advance() {
  while (tx_.gather(qp_, longest(ours_), 1u << 20)) {
    tx_.frame();
    const size_t before = said_.size();
    for (const Bytes& p : tx_.pieces()) said_.insert(said_.end(), p.begin(), p.end());
    qp_.segments_sent(tx_.taken(said_.size() - before));
    // Our Read Requests name our memory; say it as the capture does.
    for (const Operation& o : ours_.operations)
      if (o.read && o.at >= before && o.at + kSinkStag + 4 <= said_.size() &&
          base::load_be32(&said_[o.at + kSinkStag]) == regions_[o.read->sink_stag].stag)
        base::store_be32(&said_[o.at + kSinkStag], o.read->sink_stag);
  }
  std::array<rdmap::Completion, kDepth> done;
  for (uint32_t i = 0, n = send_cq_.poll(done); i < n; ++i)
    completed_ += done[i].status == rdmap::WorkStatus::kOk;
  for (uint32_t i = 0, n = recv_cq_.poll(done); i < n; ++i) {
    if (done[i].status != rdmap::WorkStatus::kOk) continue;
    const Octets& buffer = receives_[done[i].id];
    heard_.emplace_back(buffer.begin(), buffer.begin() + done[i].length);
  }
}

void Player::end_ours() {
  qp_.close();
  advance();
}
void Player::end_theirs() {
  qp_.on_llp_end(rx_.end(qp_));
  advance();
}

}  // namespace ddpsock::interop
