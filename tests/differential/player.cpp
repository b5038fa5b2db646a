// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/differential/player.h"

#include <algorithm>
#include <cstring>

#include "shm/region_memory.h"
#include "tests/conformance/rig.h"
#include "tests/differential/model.h"
#include "tests/differential/oracle.h"
#include "tests/differential/payload.h"

namespace ddpsock::differential {
namespace {

using conformance::Completion;
using conformance::Refusal;
using conformance::Rig;
using conformance::Side;
namespace op = engine::op;

constexpr size_t kGap = 64;       // between regions: nobody writes there
constexpr int kMostSteps = 1000;  // until a region is free

// `whole` in `pieces` ranges, some of them perhaps empty.
template <typename Range>
std::vector<Range> cut(Range whole, uint32_t pieces) {
  std::vector<Range> parts;
  for (uint32_t i = pieces; i > 0; --i) {
    const size_t n = i == 1 ? whole.size() : whole.size() / i;
    parts.push_back(whole.first(n));
    whole = whole.subspan(n);
  }
  return parts;
}

bool is_zero(Bytes octets) {
  return std::ranges::all_of(octets, [](uint8_t octet) { return octet == 0; });
}

// One end and its memory.
struct End {
  Side* side = nullptr;
  std::vector<uint8_t> memory;
  std::array<size_t, kRegions> at{};
  // Of some regions instead, which the other end may be let reach by itself.
  std::array<std::unique_ptr<engine::shm::RegionMemory>, kRegions> pages;
  std::array<std::optional<engine::Mr>, kRegions> mr;
  std::array<uint32_t, kRegions> stag{};  // the last that the region had
  std::array<uint64_t, kRegions> base_to{};
  Promised promised;
  size_t told_sent = 0, told_received = 0;  // completions that are noted
};

class Player {
 public:
  Player(const Script& script, const conformance::Kind& kind)
      : script_(script), rig_(kind, attr_of(script)) {
    ends_[0].side = &rig_.a;
    ends_[1].side = &rig_.b;
    for (size_t i = 0; i < kEnds; ++i) lay_out(ends_[i], i);
  }

  Observed play() {
    const size_t last = script_.rounds.size() - 1;
    for (size_t i = 0; i <= last && observed_.broken.empty(); ++i) {
      begin(script_.rounds[i]);
      const bool is_ending = i == last && ends_inside();
      if (is_ending) break;
      finish_round(i);
    }
    if (observed_.broken.empty()) end();
    check_gaps();
    return std::move(observed_);
  }

 private:
  static conformance::RigAttr attr_of(const Script& s) {
    return {
        .wish = {.ird = s.ird, .ord = s.ord, .has_crc = s.has_crc, .has_markers = s.has_markers},
        .send_depth = s.send_depth,
        .recv_depth = s.recv_depth,
        .cq_depth = 512,
        .srq_depth = s.srq_depth};
  }
  bool ends_inside() const {
    return script_.ending == Ending::kError || script_.ending == Ending::kMidway ||
           script_.ending == Ending::kCut;
  }

  bool is_ender(size_t end) const { return static_cast<size_t>(script_.ender) == end; }

  void lay_out(End& e, size_t which) {
    size_t size = kGap;
    for (size_t r = 0; r < kRegions; ++r) {
      e.at[r] = size;
      size += script_.sizes[r] + kGap;
    }
    const auto from = source().begin() + static_cast<ptrdiff_t>(which * 1000);
    e.memory.assign(from, from + static_cast<ptrdiff_t>(size));
    untouched_[which] = e.memory;
    for (size_t r = which; r < kRegions; r += 2) {
      auto made = engine::shm::RegionMemory::make(script_.sizes[r], false);
      if (!made || (*made)->file() < 0) return fail("no pages");
      std::copy_n(e.memory.begin() + static_cast<ptrdiff_t>(e.at[r]), script_.sizes[r],
                  (*made)->bytes().begin());
      e.pages[r] = std::move(*made);
    }
    for (size_t r = 0; r < kRegions; ++r)
      model_.begin(static_cast<int>(which), static_cast<int>(r), region(e, r));
  }
  MutBytes region(End& e, size_t r) {
    if (e.pages[r]) return e.pages[r]->bytes().first(script_.sizes[r]);
    return MutBytes(e.memory).subspan(e.at[r], script_.sizes[r]);
  }

  void note(std::string line) { observed_.lines.push_back(std::move(line)); }
  void fail(const std::string& what) {
    if (observed_.broken.empty()) observed_.broken = what;
  }
  int index(const End& e) const { return &e == ends_.data() ? 0 : 1; }
  std::string name(const End& e) const { return &e == ends_.data() ? "a" : "b"; }

  void begin(const Round& round) {
    for (const Registration& r : round.registrations) apply(r);
    for (size_t i = 0; i < kEnds; ++i)
      for (const Receive& r : round.receives[i]) post(ends_[i], r);
    for (size_t i = 0; i < kEnds; ++i) {
      const size_t before = ends_[i].promised.accepted.size();
      post(ends_[i], ends_[1 - i], round.work[i]);
      for (const Work* w : std::span(ends_[i].promised.accepted).subspan(before))
        if (script_.ending != Ending::kError || w->id < script_.first_wrong || !is_ender(i))
          model_.carry_out(static_cast<int>(i), *w);
    }
  }

  void apply(const Registration& r) {
    model_.note_registration(r);
    End& e = ends_[static_cast<size_t>(r.end)];
    const auto i = static_cast<size_t>(r.region);
    std::string line = name(e) + (r.is_deregistration ? " deregisters " : " registers ") +
                       std::to_string(r.region) + ": ";
    if (r.is_deregistration) {
      // What the peer has read may be told a moment later to who gave it.
      auto done = e.side->engine->deregister(*e.mr[i]);
      for (int n = 0; n < kMostSteps && done == std::unexpected(engine::DeregisterError::kInUse);
           ++n) {
        rig_.step();
        done = e.side->engine->deregister(*e.mr[i]);
      }
      e.mr[i].reset();
      return note(line + (done ? "done" : std::to_string(static_cast<int>(done.error()))));
    }
    const auto mr = e.side->engine->register_memory({.memory = region(e, i),
                                                     .base_to = r.base_to,
                                                     .rights = r.rights,
                                                     .pd = e.side->pd,
                                                     .file = e.pages[i] ? e.pages[i]->file() : -1});
    if (mr) {
      e.mr[i] = *mr;
      e.stag[i] = mr->stag;
      e.base_to[i] = r.base_to;
    }
    note(line + (mr ? "done" : std::to_string(static_cast<int>(mr.error()))));
  }

  void post(End& e, const Receive& r) {
    e.promised.buffers.push_back({r, std::vector<uint8_t>(r.size, Promised::kUntouched)});
    const auto parts = cut(MutBytes(e.promised.buffers.back().octets), r.pieces);
    const engine::RecvWr wr{.id = r.id, .buffer = parts};
    const auto posted = e.side->srq ? e.side->srq->recv({&wr, 1}) : e.side->qp->recv({&wr, 1});
    if (posted.accepted != 1) fail("a receive is refused: " + describe_refusal(posted.reason));
  }
  static std::string describe_refusal(Refusal why) { return std::to_string(static_cast<int>(why)); }

  // As one batch, and what comes behind a refused one as another.
  void post(End& e, const End& peer, const std::vector<Work>& all) {
    std::vector<std::vector<Bytes>> parts;
    parts.reserve(all.size());
    std::vector<engine::SendWr> batch;
    for (const Work& w : all) {
      parts.push_back(cut(payload_of(w), w.pieces));
      batch.push_back(request(e, peer, w, parts.back()));
    }
    for (size_t i = 0; i < all.size();) {
      const engine::Posted posted = e.side->qp->send(std::span(batch).subspan(i));
      if (posted.accepted > batch.size() - i) return fail("more accepted than offered");
      for (const size_t end = i + posted.accepted; i < end; ++i) e.promised.note_accepted(all[i]);
      if (i == all.size()) return;
      note(name(e) + " is refused " + std::to_string(all[i].id) + ": " +
           describe_refusal(posted.reason));
      if (posted.reason == Refusal::kNone) return fail("refused without a reason");
      ++i;
    }
  }
  // Keys are random: one that is over, or wrong, may be that of a registration in its place.
  static uint32_t not_anothers(const End& e, uint32_t stag, size_t region) {
    const auto is_anothers = [&](uint32_t tried) {
      for (size_t i = 0; i < kRegions; ++i)
        if (i != region && e.mr[i] && e.mr[i]->stag == tried) return true;
      return false;
    };
    while (is_anothers(stag)) stag = (stag & ~0xffu) | ((stag + 1) & 0xff);
    return stag;
  }

  static engine::SendWr request(const End& e, const End& peer, const Work& w,
                                const std::vector<Bytes>& payload) {
    const auto r = static_cast<size_t>(w.region);
    const auto s = static_cast<size_t>(w.sink);
    uint32_t stag = not_anothers(peer, peer.stag[r], r);
    if (w.flaw == Flaw::kBadKey) stag = not_anothers(peer, stag ^ 0x5a, kRegions);
    if (w.flaw == Flaw::kNoStag) stag = 0;
    const uint64_t to = peer.base_to[r] + w.offset;
    engine::SendWr wr{.id = w.id,
                      .is_signalled = w.is_signalled,
                      .has_fence = w.has_fence,
                      .is_inline = w.is_inline};
    switch (w.verb) {
      case Verb::kSend:
        wr.op = op::Send{.payload = payload, .is_solicited = w.is_solicited};
        break;
      case Verb::kSendInvalidate:
        wr.op = op::Send{.payload = payload, .is_solicited = w.is_solicited, .invalidate = stag};
        break;
      case Verb::kWrite:
        wr.op = op::Write{.payload = payload, .stag = stag, .to = to};
        break;
      case Verb::kRead:
        wr.op = op::Read{.sink_stag = w.flaw == Flaw::kNoSink ? 0 : not_anothers(e, e.stag[s], s),
                         .sink_to = e.base_to[s] + w.sink_offset,
                         .length = w.length,
                         .stag = stag,
                         .to = to};
        break;
      case Verb::kImmediate:
        wr.op = op::Immediate{.value = w.value, .is_solicited = w.is_solicited};
        break;
      case Verb::kFetchAdd:
        wr.op = op::FetchAdd{.stag = stag, .to = to, .add = w.value, .field_tops = w.field_tops()};
        break;
      case Verb::kSwap:
        wr.op = op::Swap{.stag = stag, .to = to, .value = w.value};
        break;
      case Verb::kCmpSwap:
        wr.op = op::CmpSwap{.stag = stag,
                            .to = to,
                            .compare = w.compare(),
                            .compare_mask = w.compare_mask(),
                            .swap = w.value,
                            .swap_mask = w.swap_mask()};
        break;
      case Verb::kLocalInvalidate:
        wr.op = op::LocalInvalidate{.stag = not_anothers(e, e.stag[s], s)};
        break;
    }
    return wr;
  }

  bool is_done() const {
    for (size_t i = 0; i < kEnds; ++i) {
      const End& e = ends_[i];
      if (e.side->sent.size() < e.promised.signalled) return false;
      if (e.side->received.size() < ends_[1 - i].promised.messages.size()) return false;
    }
    return true;
  }

  void finish_round(size_t round) {
    if (!rig_.run_until([this] { return is_done() || has_ended(); }))
      return fail("round " + std::to_string(round) + " does not come to its end");
    if (has_ended())
      return fail("round " + std::to_string(round) + " ends the connection: " + ends());
    for (End& e : ends_) {
      note_completions(e, UINT64_MAX);
      check_memory(e);
    }
  }
  bool has_ended() const {
    return std::ranges::any_of(ends_, [](const End& e) {
      const auto state = e.side->qp->state();
      return state == engine::QpState::kEnded || state == engine::QpState::kTerminate;
    });
  }
  std::string ends() const {
    return "a " + conformance::describe(rig_.a.qp->terminate_info()) + ", b " +
           conformance::describe(rig_.b.qp->terminate_info());
  }

  void check_memory(End& e) {
    for (size_t r = 0; r < kRegions; ++r)
      if (!std::ranges::equal(region(e, r), model_.memory(index(e), static_cast<int>(r))))
        fail(name(e) + " has other octets in region " + std::to_string(r));
  }

  static bool is_silent(const End& e, uint64_t id) {
    const auto work =
        std::ranges::find(e.promised.accepted, id, [](const Work* w) { return w->id; });
    return work != e.promised.accepted.end() && !(*work)->is_signalled;
  }
  // From work `first_open` on the status is anybody's, but for the rules of oracle.h.
  // Too long for the receive that it finds, or without one.
  bool is_a_message_wrong() const {
    const auto& work = script_.rounds.back().work[static_cast<size_t>(script_.ender)];
    return script_.ending == Ending::kError && std::ranges::any_of(work, [this](const Work& w) {
             return w.id == script_.first_wrong && w.verb == Verb::kSend;
           });
  }
  // But for STags, which are random, for what depends on how a message is cut, and for the number
  // of a request (MSN): what the asking end could do by itself was never one.
  std::string describe(const engine::TerminateInfo& info) {
    std::string text = conformance::describe(info);
    const rdmap::Terminate& t = info.terminate;
    if (is_a_message_wrong()) return text;
    if (t.segment_length) text += ", of " + std::to_string(*t.segment_length);
    const auto add = [&](Bytes octets, std::initializer_list<size_t> words) {
      for (size_t i = 0; i < octets.size(); ++i) {
        const bool is_open =
            std::ranges::any_of(words, [i](size_t at) { return i >= at && i < at + 4; });
        text += is_open ? " *" : " " + std::to_string(octets[i]);
      }
    };
    text += ", header";
    const bool is_request =
        t.has_read_request || t.ddp_header[DDP_UNTAGGED_QN_OFFSET + 3] == RDMAP_QN_READ_REQUEST;
    const size_t number_at = is_request ? DDP_UNTAGGED_MSN_OFFSET : DDP_TAGGED_STAG_OFFSET;
    add(Bytes(t.ddp_header).first(t.ddp_header_length),
        {DDP_TAGGED_STAG_OFFSET, DDP_UNTAGGED_RSVDULP_WORD_OFFSET, number_at});
    if (t.has_read_request)
      add(t.read_request, {RDMAP_RR_SINK_STAG_OFFSET, RDMAP_RR_SOURCE_STAG_OFFSET});
    return text;
  }
  void note_completions(End& e, uint64_t first_open) {
    for (; e.told_sent < e.side->sent.size(); ++e.told_sent) {
      const Completion& c = e.side->sent[e.told_sent];
      if (c.id < first_open && c.status != conformance::WorkStatus::kFlushed) {
        const std::string wrong = model_.judge(index(e), c);
        if (!wrong.empty()) fail(name(e) + " " + wrong);
      }
      const bool is_asked =
          c.kind != conformance::WorkKind::kSend && c.kind != conformance::WorkKind::kWrite;
      if (c.id == first_open && is_asked && c.status != conformance::WorkStatus::kFlushed)
        fail(name(e) + " completes what was wrong: " + std::to_string(c.id));
      if (c.id >= first_open && is_silent(e, c.id)) continue;
      note(name(e) + " sent " + std::to_string(c.id) + ": kind " +
           std::to_string(static_cast<int>(c.kind)) +
           (c.id >= first_open
                ? ""
                : ", status " + std::to_string(static_cast<int>(c.status)) + ", length " +
                      std::to_string(c.length) + ", found " + std::to_string(c.original)));
    }
    for (; e.told_received < e.side->received.size(); ++e.told_received)
      note(name(e) + " received " + describe(e, e.side->received[e.told_received]));
  }
  // Keys are random: a region that is no longer registered may have had the same STag.
  static size_t region_of(const End& e, uint32_t stag) {
    for (size_t i = 0; i < kRegions; ++i)
      if (e.mr[i] && e.mr[i]->stag == stag) return i;
    return static_cast<size_t>(std::ranges::find(e.stag, stag) - e.stag.begin());
  }
  static std::string describe(const End& e, const Completion& c) {
    std::string text = std::to_string(c.id) + ": status " +
                       std::to_string(static_cast<int>(c.status)) + ", length " +
                       std::to_string(c.length) + (c.is_solicited ? ", solicited" : "") +
                       (c.is_shared ? ", shared" : "");
    if (c.immediate) text += ", immediate " + std::to_string(*c.immediate);
    if (c.invalidated_stag) {
      text += ", invalidated " + std::to_string(region_of(e, *c.invalidated_stag));
    }
    return text;
  }

  void end() {
    End& ender = ends_[static_cast<size_t>(script_.ender)];
    if (script_.ending == Ending::kMidway || script_.ending == Ending::kCut)
      for (uint32_t i = 0; i < script_.steps; ++i) rig_.step();
    switch (script_.ending) {
      case Ending::kOrderly:
        for (End& e : ends_) e.side->qp->drain();
        break;
      case Ending::kOneDrains:
        ender.side->qp->drain();
        break;
      case Ending::kError:
        break;
      case Ending::kTerminate:
        ender.side->qp->abort(rdmap::TermCode{});
        break;
      case Ending::kAbort:
      case Ending::kMidway:
        ender.side->qp->abort(std::nullopt);
        break;
      case Ending::kCut:
        rig_.bench->cut(rig_.a.start.lower);
        break;
    }
    if (!rig_.run_to_end()) return fail("the connection does not come to its end");
    rig_.a.poll();
    rig_.b.poll();
    for (size_t i = 0; i < kEnds; ++i) {
      const End& e = ends_[i];
      const Side& side = *e.side;
      for (const std::string& wrong :
           {judge_sent(e.promised, side.sent),
            judge_received(e.promised, ends_[1 - i].promised, side.received, side.srq != nullptr)})
        if (!wrong.empty()) fail(name(e) + " " + wrong);
    }
    if (script_.ending != Ending::kMidway && script_.ending != Ending::kCut) note_end(ender);
  }

  void note_end(const End& ender) {
    for (End& e : ends_) {
      // Whether what was wrong at the peer had left before that was known is anybody's.
      const bool is_open = script_.ending == Ending::kError && &e == &ender;
      note_completions(e, is_open ? script_.first_wrong : UINT64_MAX);
      check_memory(e);
      // Whether a link that is gone is told from one that has ended is the lower layer's.
      if (script_.ending != Ending::kAbort)
        note(name(e) + " ended: " + describe(e.side->qp->terminate_info()));
    }
  }
  void check_gaps() {
    for (size_t i = 0; i < kEnds; ++i) {
      size_t at = 0;
      for (size_t r = 0; r <= kRegions; ++r) {
        const size_t end = r < kRegions ? ends_[i].at[r] : ends_[i].memory.size();
        if (std::memcmp(&ends_[i].memory[at], &untouched_[i][at], end - at) != 0)
          fail(name(ends_[i]) + ": octets between the regions have changed");
        if (r < kRegions) at = end + (ends_[i].pages[r] ? 0 : script_.sizes[r]);
      }
      for (size_t r = 0; r < kRegions; ++r)
        if (ends_[i].pages[r] && !is_zero(ends_[i].pages[r]->bytes().subspan(script_.sizes[r])))
          fail(name(ends_[i]) + ": octets behind a region have changed");
    }
  }

  const Script& script_;
  std::array<std::vector<uint8_t>, kEnds> untouched_;
  std::array<End, kEnds> ends_;
  Model model_;
  Rig rig_;  // ends before the memory that it names
  Observed observed_;
};

}  // namespace

Observed play(const Script& script, const conformance::Kind& kind) {
  return Player(script, kind).play();
}

}  // namespace ddpsock::differential
