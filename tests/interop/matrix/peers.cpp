// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/interop/matrix/peers.h"

namespace ddpsock::interop {

PeerKind siw(std::string name, const SiwOptions& options) {
  return {std::move(name), [options](Role role, const Ulp& ulp, int) {
            SiwOptions own = options;
            own.ulp = ulp;
            return make_siw(role, own);
          }};
}

PeerKind siw_in_pieces() {
  return {"siw, octet by octet", [](Role role, const Ulp& ulp, int) {
            auto persona = make_siw(role, {.ulp = ulp});
            persona->split();
            return persona;
          }};
}

PeerKind cxgb4(std::string name, const Cxgb4Options& options) {
  return {std::move(name), [options](Role role, const Ulp& ulp, int) {
            Cxgb4Options own = options;
            own.ulp = ulp;
            return make_cxgb4(role, own);
          }};
}

PeerKind irdma(std::string name, const IrdmaOptions& options) {
  return {std::move(name), [options](Role role, const Ulp& ulp, int) {
            IrdmaOptions own = options;
            own.ulp = ulp;
            return make_irdma(role, own);
          }};
}

PeerKind framer(std::string name, const Frame& frame) {
  return {std::move(name),
          [frame](Role role, const Ulp&, int) { return make_framer(role, frame); }};
}

PeerKind plain(std::string name, const Script& script) {
  return {std::move(name), [script](Role, const Ulp&, int) { return make_script(script); }};
}

Octets octets(std::string_view text) {
  return {text.begin(), text.end()};
}

Octets filled(size_t size) {
  Octets data(size);
  for (size_t i = 0; i < size; ++i) data[i] = static_cast<uint8_t>(i + 1);
  return data;
}

mpa::PrivateData private_data(const Octets& octets) {
  return *mpa::PrivateData::from(octets);
}

}  // namespace ddpsock::interop
