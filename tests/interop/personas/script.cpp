// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/interop/personas/script.h"

namespace ddpsock::interop {
namespace {

class Scripted final : public Persona {
 public:
  explicit Scripted(const Script& script) : Persona(Role::kResponder), script_(script) {}

 private:
  void open() override {
    if (!script_.greeting.empty()) say(script_.greeting);
    if (script_.hangs_up_at_once) refuse("closes", script_.then);
  }
  void on_startup(size_t) override {
    if (!script_.answer.empty()) say(script_.answer);
    if (script_.then != Hangup::kNo) refuse("closes", script_.then);
  }

  Script script_;
};

class Framer final : public Persona {
 public:
  Framer(Role role, const Frame& frame) : Persona(role), frame_(frame) {
    writer_.omits_crc_word = frame.omits_crc_word;
  }

 private:
  void open() override {
    if (role_ == Role::kInitiator) say_frame(kRequestKey);
  }
  void say_frame(const char* key) {
    Octets frame =
        startup_frame(key, frame_.flags, frame_.revision, frame_.words, frame_.private_data);
    frame.insert(frame.end(), frame_.trailing.begin(), frame_.trailing.end());
    say(std::move(frame));
  }
  void on_startup(size_t) override {
    const FrameView view(stream_);
    if (!view.has_header() || !view.is_whole()) return;
    if (role_ == Role::kResponder) say_frame(kReplyKey);
    if (role_ == Role::kInitiator && (view.flags() & kFlagR) != 0)
      return refuse("rejected", Hangup::kFin);
    const bool has_crc = frame_.agreement && frame_.agreement->has_crc;
    if (frame_.terminate != 0)
      return terminate(frame_.terminate, "as told", has_crc, frame_.is_terminate_swapped);
    PeerAgreement agreement = frame_.agreement.value_or(PeerAgreement{.has_crc = true});
    agree(agreement, view.size());
  }

  Frame frame_;
};

}  // namespace

std::unique_ptr<Persona> make_script(const Script& script) {
  return std::make_unique<Scripted>(script);
}
std::unique_ptr<Persona> make_framer(Role role, const Frame& frame) {
  return std::make_unique<Framer>(role, frame);
}

}  // namespace ddpsock::interop
