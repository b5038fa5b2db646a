// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "message/beside_stream.h"

#include <cerrno>

#include "base/sys.h"
#include "message/progress.h"

namespace ddpsock::message {
namespace {

// Of a peer that is there; one that is stopped is not waited for.
constexpr Duration kHandOver = Duration::from_ms(100);

}  // namespace

void BesideStream::wake() {
  progress_.watch_.wake();
}

// Called by the thread that is about to deliver.
bool BesideStream::take_in() {
  const Progress::Lock held(progress_);
  const auto is_running = [this] { return progress_.endpoint_.phase() == Phase::kRunning; };
  const bool is_starting = progress_.endpoint_.phase() == Phase::kStarting;
  if (is_starting || (is_in_memory() && is_running()))
    progress_.step(base::now(), Progress::Look::kWhole);
  while (is_running() && !arrived.is_done()) progress_.step(base::now(), Progress::Look::kWhole);
  progress_.arm();
  return is_running();
}

void BesideStream::hand_over() {
  if (stream_ == nullptr || !is_in_memory()) return;
  const Time give_up = base::now() + kHandOver;
  while (flush() == EAGAIN && base::now() < give_up) base::sys.poll(nullptr, 0, 1);
}

// Called by the thread that is about to send.
int BesideStream::flush() {
  if (sent_up_to_.load() == posts()) return 0;
  const Progress::Lock held(progress_);
  const auto is_running = [this] { return progress_.endpoint_.phase() == Phase::kRunning; };
  if (!is_running()) return 0;
  const engine::Need& need = progress_.need_;
  do {
    progress_.step(base::now(), Progress::Look::kNone);
  } while (is_running() && !need.wants_writable && sent_up_to_.load() != posts() &&
           need.deadline <= base::now());
  progress_.arm();
  return is_running() && need.wants_writable ? EAGAIN : 0;
}

}  // namespace ddpsock::message
