// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/interop/personas/persona.h"

#include <utility>

namespace ddpsock::interop {

void Persona::input(const Octets& segment) {
  if (phase_ == Phase::kOver) return;
  if (phase_ == Phase::kStartup) {
    stream_.insert(stream_.end(), segment.begin(), segment.end());
    on_startup(segment.size());
    return;
  }
  if (role_ == Role::kInitiator && !has_spoken_) account_.was_spoken_to_early = true;
  reader_.feed(segment);
  read_fpdus();
}

void Persona::ended() {
  if (phase_ == Phase::kStartup) on_close();
  phase_ = Phase::kOver;
}

std::vector<Octets> Persona::take_segments() {
  std::vector<Octets> out = std::exchange(out_, {});
  if (phase_ == Phase::kFpdus && !out.empty()) has_spoken_ = true;
  if (!is_split_ || phase_ == Phase::kFpdus) return out;
  std::vector<Octets> single;
  for (const Octets& segment : out)
    for (uint8_t octet : segment) single.push_back({octet});
  return single;
}

const Account& Persona::account() {
  account_.stream_error = reader_.error();
  account_.unfinished_octets = reader_.octets_left();
  return account_;
}

void Persona::refuse(std::string verdict, Hangup how) {
  account_.verdict = std::move(verdict);
  hangup_ = how;
  phase_ = Phase::kOver;
}

void Persona::agree(const PeerAgreement& agreement, size_t taken) {
  account_.verdict = "agreed";
  account_.agreement = agreement;
  phase_ = Phase::kFpdus;
  writer_.has_crc = reader_.has_crc = agreement.has_crc;
  writer_.has_markers = agreement.sends_markers;
  reader_.has_markers = agreement.wants_markers;
  reader_.feed({stream_.begin() + static_cast<ptrdiff_t>(taken), stream_.end()});
  if (role_ == Role::kInitiator) {
    say_rtr();
    if (speaks_first_) speak();
  }
  read_fpdus();
}

void Persona::terminate(uint8_t code, std::string why, bool has_crc, bool is_swapped) {
  writer_.has_crc = has_crc;
  say_ulpdu(terminate_ulpdu(code, is_swapped));
  refuse("Terminate " + std::to_string(code) + ": " + std::move(why), Hangup::kFin);
}

void Persona::say_rtr() {
  const RtrPlace place = rtr_place();
  switch (account_.agreement.rtr) {
    case PeerRtr::kNone:
      return;
    case PeerRtr::kSend:
      say_ulpdu(send_ulpdu(next_msn_++, ""));
      return;
    case PeerRtr::kWrite:
      say_ulpdu(write_ulpdu(place.stag, place.to));
      return;
    case PeerRtr::kRead:
      say_ulpdu(read_request_ulpdu(1, {place.sink_stag, place.sink_to, 0, place.stag, place.to}));
      return;
  }
}

void Persona::speak() {
  say_ulpdu(send_ulpdu(next_msn_++, kPeerText));
}

void Persona::read_fpdus() {
  while (const auto ulpdu = reader_.next_ulpdu()) {
    const bool is_first = !std::exchange(has_heard_, true);
    if (is_first) account_.first_ulpdu = *ulpdu;
    if (is_first && role_ == Role::kResponder) check_rtr(*ulpdu);
    on_ulpdu(*ulpdu);
    // The responder's ULP speaks once it has heard anything.
    if (is_first && (role_ == Role::kResponder || !speaks_first_)) speak();
  }
}

// Of an RTR message only STag and TO may differ.
void Persona::check_rtr(const Octets& ulpdu) {
  if (ulpdu.size() >= 2 && ulpdu[1] == 0x47) return;  // a Terminate may come instead
  const bool is_tagged_right = ulpdu.size() == 14 && ulpdu[0] == 0xc1;
  bool is_right = true;
  switch (account_.agreement.rtr) {
    case PeerRtr::kNone:
      break;
    case PeerRtr::kSend:
      is_right = ulpdu == send_ulpdu(1, "");
      break;
    case PeerRtr::kWrite:
      is_right = is_tagged_right && ulpdu[1] == 0x40;
      break;
    case PeerRtr::kRead:
      is_right =
          ulpdu.size() == 46 && ulpdu == read_request_ulpdu(1, {be32(ulpdu, 18), be64(ulpdu, 22), 0,
                                                                be32(ulpdu, 34), be64(ulpdu, 38)});
      break;
  }
  if (!is_right) account_.verdict = "agreed, but the RTR message is wrong";
}

void Persona::on_ulpdu(const Octets& ulpdu) {
  if (ulpdu.size() < 14) {
    account_.verdict = "agreed, but a ULPDU is too short";
    return;
  }
  const unsigned opcode = ulpdu[1] & 0x0f;
  const bool is_tagged = (ulpdu[0] & 0x80) != 0;
  if (!is_tagged && opcode == 3) on_send(ulpdu);
  if (!is_tagged && opcode == 1 && ulpdu.size() == 46)
    say_ulpdu(read_response_ulpdu(be32(ulpdu, 18), be64(ulpdu, 22)));
  if (is_tagged && opcode == 2 && ulpdu.size() == 14) account_.has_read_response = true;
  if (!is_tagged && opcode == 7 && ulpdu.size() >= 22)
    account_.terminate = PeerTerminate{static_cast<uint8_t>(ulpdu[18] >> 4),
                                       static_cast<uint8_t>(ulpdu[18] & 0xf), ulpdu[19]};
}

void Persona::on_send(const Octets& ulpdu) {
  if (ulpdu.size() < 18 || be32(ulpdu, 10) != awaited_msn_++)
    account_.verdict = "agreed, but a Send is out of order";
  const bool is_rtr =
      account_.agreement.rtr == PeerRtr::kSend && awaited_msn_ == 2 && role_ == Role::kResponder;
  if (!is_rtr) account_.heard.emplace_back(ulpdu.begin() + 18, ulpdu.end());
}

}  // namespace ddpsock::interop
