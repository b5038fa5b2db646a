// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "message/beside_stream.h"

#include <cerrno>

#include "message/progress.h"

namespace ddpsock::message {

void BesideStream::wake() {
  progress_.watch_.wake();
}

// Called by the thread that is about to deliver.
void BesideStream::take_in() {
  const Progress::Lock held(progress_);
  while (progress_.endpoint_.phase() == Phase::kRunning && !arrived.is_done())
    progress_.step(base::now(), Progress::Look::kWhole);
  progress_.arm();
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
