// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "message/inbox.h"

#include <algorithm>
#include <cerrno>

#include "message/progress.h"
#include "message/work.h"

namespace ddpsock::message {
namespace {

// A shared receive of a connection that the program has closed: its buffer is the program's again.
void give_back(const engine::Completion& from, ddp_completion& to) {
  to = {};
  to.cookie = from.id;
  to.fd = -1;
  to.kind = DDP_RECEIVED;
  to.status = ECANCELED;
}

}  // namespace

bool Inbox::add(Progress& c) {
  const std::lock_guard lock(mutex_);
  return connections_.insert(c);
}

void Inbox::remove(Progress& c) {
  const std::lock_guard lock(mutex_);
  connections_.erase(c);
  for (Progress** at = &first_event_; *at != nullptr; at = &(*at)->event.next) {
    if (*at != &c) continue;
    *at = c.event.next;
    break;
  }
  // A call that still runs may find it established or ended now.
  c.event = {.is_removed = true};
}

// REQUIRES: mutex_, as all that touches events.
void Inbox::link(Progress& c) {
  if (c.event.is_listed || c.event.is_removed) return;
  c.event.is_listed = true;
  c.event.next = first_event_;
  first_event_ = &c;
  has_event_.store(true, std::memory_order_relaxed);
}

void Inbox::unlink_idle() {
  for (Progress** at = &first_event_; *at != nullptr;) {
    Progress& c = **at;
    if (c.event.is_established || c.event.is_ended) {
      at = &c.event.next;
      continue;
    }
    *at = c.event.next;
    c.event.next = nullptr;
    c.event.is_listed = false;
  }
  has_event_.store(first_event_ != nullptr, std::memory_order_relaxed);
}

void Inbox::note(Progress& c, ddp_kind kind) {
  const std::lock_guard lock(mutex_);
  if (kind == DDP_ESTABLISHED) {
    c.event.is_established = true;
  } else {
    c.event.is_ended = c.event.is_over = true;
  }
  link(c);
}

void Inbox::forget_established(Progress& c) {
  const std::lock_guard lock(mutex_);
  c.event.is_established = false;
  unlink_idle();
}

bool Inbox::has_told_end() const {
  const std::lock_guard lock(mutex_);
  bool has_told = false;
  connections_.visit([&](const Progress& c) { has_told = c.event.is_over && !c.event.is_ended; });
  return has_told;
}

unsigned Inbox::take_events(ddp_kind kind, std::span<ddp_completion> out) {
  const bool is_end = kind == DDP_ENDED;
  unsigned n = 0;
  for (Progress* c = first_event_; c != nullptr && n < out.size(); c = c->event.next) {
    bool& is_due = is_end ? c->event.is_ended : c->event.is_established;
    if (!is_due || (is_end && c->event.is_established)) continue;
    is_due = false;
    out[n] = {};
    out[n].fd = c->endpoint().fd();
    out[n].kind = kind;
    if (is_end) out[n].status = c->endpoint().end_status();
    if (is_end) out[n].terminate = c->endpoint().end_terminate();
    ++n;
  }
  return n;
}

unsigned Inbox::take_work(std::span<ddp_completion> out) {
  unsigned n = 0;
  while (n < out.size()) {
    const size_t room = std::min(raw_.size(), out.size() - n);
    const uint32_t got = cq_->poll(std::span(raw_).first(room));
    for (uint32_t i = 0; i < got; ++i) {
      if (Progress* c = connections_.find(raw_[i].qp)) {
        translate(raw_[i], c->endpoint(), out[n++]);
      } else if (raw_[i].is_shared) {
        give_back(raw_[i], out[n++]);
      }
    }
    if (got < room) break;
  }
  return n;
}

unsigned Inbox::take(std::span<ddp_completion> out) {
  const std::lock_guard lock(mutex_);
  const bool has_events = first_event_ != nullptr;
  unsigned n = has_events ? take_events(DDP_ESTABLISHED, out) : 0;
  n += take_work(out.subspan(n));
  if (!has_events) return n;
  // An end is told after all of its connection's work, which was in the queue before it.
  n += take_events(DDP_ENDED, out.subspan(n));
  unlink_idle();
  return n;
}

}  // namespace ddpsock::message
