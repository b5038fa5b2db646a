// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/interop/matrix/cells.h"

namespace ddpsock::interop {

Calling calling(std::string name, const std::function<void(mpa::InitiatorConfig&)>& change) {
  Calling made{.name = std::move(name)};
  made.config.is_peer_to_peer = true;
  if (change) change(made.config);
  return made;
}

Answering answering(std::string name,
                    const std::function<void(mpa::ResponderConfig&, Decision&)>& change) {
  Answering made{.name = std::move(name)};
  if (change) change(made.config, made.decision);
  return made;
}

Calling by_default() {
  return calling("default");
}
Calling without_p2p() {
  return calling("no peer-to-peer", [](auto& c) { c.is_peer_to_peer = false; });
}
Calling without_crc() {
  return calling("CRC off", [](auto& c) { c.wants_crc = false; });
}
Calling of_revision(uint8_t revision) {
  return calling("revision " + std::to_string(revision), [=](auto& c) { c.revision = revision; });
}
Calling offering(std::string name, mpa::RtrSet offer) {
  return calling("offers " + name, [=](auto& c) { c.rtr_offer = offer; });
}
Calling with_depths(uint16_t depth) {
  return calling("IRD and ORD " + std::to_string(depth), [=](auto& c) { c.ird = c.ord = depth; });
}
Calling without_negotiation() {
  return calling("IRD and ORD open", [](auto& c) { c.ird = c.ord = mpa::kNotNegotiated; });
}
Calling with_data(size_t size) {
  return calling(std::to_string(size) + " octets of private data",
                 [=](auto& c) { c.private_data = private_data(filled(size)); });
}
Calling asking_for_markers() {
  return calling("asks for Markers", [](auto& c) { c.needs_markers = true; });
}

Answering accepting() {
  return answering("default");
}
Answering accepting_without_crc() {
  return answering("CRC off", [](auto& c, auto&) { c.wants_crc = false; });
}
Answering taking(std::string name, mpa::RtrSet taken) {
  return answering("takes RTR " + name + " only", [=](auto& c, auto&) { c.rtr_accepted = taken; });
}
Answering accepting_depths(uint16_t depth) {
  return answering("IRD and ORD " + std::to_string(depth),
                   [=](auto&, auto& d) { d.acceptance.ird = d.acceptance.ord = depth; });
}
Answering accepting_without_negotiation() {
  return answering("IRD and ORD open", [](auto&, auto& d) {
    d.acceptance.ird = d.acceptance.ord = mpa::kNotNegotiated;
  });
}
Answering accepting_with_data(size_t size) {
  return answering(std::to_string(size) + " octets of private data",
                   [=](auto&, auto& d) { d.acceptance.private_data = private_data(filled(size)); });
}
Answering rejecting_with_data(size_t size) {
  return answering("rejects, " + std::to_string(size) + " octets of private data",
                   [=](auto&, auto& d) {
                     d.rejects = true;
                     d.acceptance.private_data = private_data(filled(size));
                   });
}

Cell agrees(const PeerKind& peer, const Ours& ours, const Agrees& outcome, std::string reason,
            const Row& row) {
  return {.peer = peer,
          .ours = ours,
          .ulp = row.ulp,
          .outcome = outcome,
          .has_fallen_back = row.has_fallen_back,
          .then = row.then,
          .peer_term_code = row.peer_term_code,
          .verdict = row.verdict,
          .reason = std::move(reason)};
}

Cell fails(const PeerKind& peer, const Ours& ours, const Fails& outcome, std::string verdict,
           std::string reason, const Row& row) {
  Cell cell = agrees(peer, ours, {}, std::move(reason), row);
  cell.outcome = outcome;
  cell.verdict = std::move(verdict);
  return cell;
}

}  // namespace ddpsock::interop
