// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <gtest/gtest.h>

#include "tests/interop/siw/peer.h"
#include "tools/iwarp/endpoint.h"

namespace ddpsock::interop {
namespace {

constexpr uint16_t kMostReads = 128;

std::vector<uint8_t> copy(Bytes bytes) {
  return {bytes.begin(), bytes.end()};
}

engine::Rights rights(Access access) {
  engine::Rights r = rdmap::kLocalRead | rdmap::kLocalWrite;
  if (access == Access::kRemoteRead || access == Access::kRemoteBoth) r = r | rdmap::kRemoteRead;
  if (access == Access::kRemoteWrite || access == Access::kRemoteBoth) r = r | rdmap::kRemoteWrite;
  return r;
}

class Ours final : public Peer {
 public:
  Ours(const Profile& profile, const std::string& address, uint16_t port)
      : profile_(profile), address_(*iwarp::Address::resolve(address, port)) {
    auto end = iwarp::Endpoint::make(
        {.send_depth = kDepth, .recv_depth = kDepth, .max_ird = kMostReads, .max_ord = kMostReads});
    EXPECT_TRUE(end);
    end_ = std::move(*end);
  }

  bool is_ours() const override { return true; }

  Region expose(size_t size, Access access) override {
    memory_.push_back(std::make_unique<uint8_t[]>(size));
    const MutBytes memory(memory_.back().get(), size);
    const auto mr = end_->register_memory(memory, rights(access));
    EXPECT_TRUE(mr);
    regions_.push_back({.stag = mr->stag, .to = mr->base_to, .memory = memory});
    return regions_.back();
  }

  void post_receive(uint64_t id, MutBytes part) override {
    EXPECT_TRUE(end_->post(engine::RecvWr{.id = id, .buffer = {&part, 1}}));
  }

  Outcome connect(const Hello& mine) override {
    return outcome_of(end_->connect(
        address_, {.startup = {.revision = profile_.revision,
                               .wants_crc = profile_.ours_wants_crc,
                               .is_peer_to_peer = profile_.is_peer_to_peer,
                               .ird = mine.ird,
                               .ord = mine.ord,
                               .private_data = *mpa::PrivateData::from(mine.private_data)}}));
  }

  void listen() override {
    auto listener = iwarp::Listener::open(address_);
    ASSERT_TRUE(listener) << listener.error().text;
    listener_.emplace(std::move(*listener));
  }

  Outcome wait_for_request() override {
    auto fd = listener_->take(base::now() + kPatience);
    if (!fd) return {.text = fd.error().text};
    const auto heard = end_->hear(std::move(*fd), {.wants_crc = profile_.ours_wants_crc});
    if (!heard) return {.text = heard.error().text};
    const mpa::StartupFrame request = end_->responder().request();
    Outcome o{.kind = Outcome::Kind::kRequested,
              .private_data = copy(request.private_data),
              .revision = request.revision};
    if (request.enhanced) {
      o.ird = request.enhanced->ord;
      o.ord = request.enhanced->ird;
    }
    return o;
  }

  Outcome accept(const Hello& mine, const std::function<void()>& on_answered) override {
    const Outcome o = outcome_of(end_->answer(
        end_->responder().accept({.ird = mine.ird,
                                  .ord = mine.ord,
                                  .private_data = *mpa::PrivateData::from(mine.private_data)},
                                 base::now())));
    on_answered();
    return o;
  }

  bool reject(const std::vector<uint8_t>& private_data) override {
    const auto answered =
        end_->answer(end_->responder().reject(*mpa::PrivateData::from(private_data), base::now()));
    return !answered && answered.error().startup->error == mpa::StartupError::kRejected;
  }

  void send(uint64_t id, Bytes payload, const SendOptions& options) override {
    post({.id = id,
          .op = engine::op::Send{.payload = {&payload, 1},
                                 .is_solicited = options.is_solicited,
                                 .invalidate = options.invalidate}});
  }
  void write(uint64_t id, Bytes payload, uint32_t stag, uint64_t to) override {
    post({.id = id, .op = engine::op::Write{.payload = {&payload, 1}, .stag = stag, .to = to}});
  }
  void read(uint64_t id, MutBytes sink, uint32_t stag, uint64_t to) override {
    const Region& r = region_of(sink);
    post({.id = id,
          .op = engine::op::Read{
              .sink_stag = r.stag,
              .sink_to = r.to + static_cast<uint64_t>(sink.data() - r.memory.data()),
              .length = static_cast<uint32_t>(sink.size()),
              .stag = stag,
              .to = to}});
  }

  Event next(Duration within) override {
    const auto c = end_->next_completion(base::now() + within);
    if (!c) return {.kind = end_->has_ended() ? Event::Kind::kEnded : Event::Kind::kTimedOut};
    Event e{.kind = kind_of(c->kind),
            .id = c->id,
            .is_ok = c->status == engine::WorkStatus::kOk,
            .length = c->length,
            .invalidated = c->invalidated_stag};
    return e;
  }

  void finish() override { EXPECT_TRUE(end_->close(base::now() + kPatience)); }

  std::optional<rdmap::TermCode> terminate() const override {
    const engine::TerminateInfo info = end_->qp().terminate_info();
    if (!info.has_terminate()) return std::nullopt;
    return info.terminate.code;
  }

 private:
  static Event::Kind kind_of(engine::WorkKind kind) {
    switch (kind) {
      case engine::WorkKind::kReceive:
        return Event::Kind::kReceived;
      case engine::WorkKind::kWrite:
        return Event::Kind::kWritten;
      case engine::WorkKind::kRead:
        return Event::Kind::kRead;
      default:
        return Event::Kind::kSent;
    }
  }

  Outcome outcome_of(const Status<iwarp::Error>& status) const {
    if (!status) {
      const auto& startup = status.error().startup;
      const bool is_rejected = startup && startup->error == mpa::StartupError::kRejected;
      Outcome o{.kind = is_rejected ? Outcome::Kind::kRejected : Outcome::Kind::kFailed,
                .text = status.error().text};
      if (startup) o.private_data = copy(startup->private_data.bytes());
      return o;
    }
    const mpa::Agreement& a = end_->agreement();
    return {.kind = Outcome::Kind::kConnected,
            .private_data = copy(a.private_data.bytes()),
            .ird = a.ird,
            .ord = a.ord,
            .has_crc = a.has_crc,
            .revision = a.revision};
  }

  const Region& region_of(Bytes part) const {
    for (const Region& r : regions_) {
      if (part.data() >= r.memory.data() && part.data() <= r.memory.data() + r.memory.size())
        return r;
    }
    ADD_FAILURE() << "not in exposed memory";
    return regions_.front();
  }

  void post(const engine::SendWr& work) {
    EXPECT_TRUE(end_->post(work));
    end_->flush();
  }

  const Profile profile_;
  const iwarp::Address address_;
  std::vector<std::unique_ptr<uint8_t[]>> memory_;
  std::vector<Region> regions_;
  std::unique_ptr<iwarp::Endpoint> end_;
  std::optional<iwarp::Listener> listener_;
};

}  // namespace

std::unique_ptr<Peer> make_ours(const Profile& profile, const std::string& address, uint16_t port) {
  return std::make_unique<Ours>(profile, address, port);
}

}  // namespace ddpsock::interop
