// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A connection's part in a byte stream, between whose chunks its FPDUs travel
// (stream/queue_pair.h): what the stream's calls ask of it, and how far it has sent.
#ifndef DDPSOCK_MESSAGE_BESIDE_STREAM_H_
#define DDPSOCK_MESSAGE_BESIDE_STREAM_H_

#include <atomic>

#include "stream/one_sided_way.h"
#include "stream/queue_pair.h"

namespace ddpsock::message {

class Progress;

class BesideStream final : public engine::OneSided {
 public:
  explicit BesideStream(Progress& progress) : progress_(progress) {}
  // With the connection's lock, before its phase changes: `stream` has begun it.
  void begin(engine::OneSidedWay& stream) { stream_ = &stream; }
  void end() {
    if (stream_ != nullptr) stream_->end();
  }
  // nullptr: there is none, and nothing below matters.
  engine::OneSidedWay* stream() const { return stream_; }

  // Sends, up to now.
  uint64_t posts() const { return posts_.load(); }
  void note_posts(unsigned count) {
    if (stream_ != nullptr) posts_.fetch_add(count);
  }
  // With the lock: all that had arrived has been taken in; and (`has_sent`) those before `posts`
  // have left as far as they can.
  void note_advance(uint64_t posts, bool has_sent) {
    if (has_sent) sent_up_to_.store(posts);
    arrived.note_done();
  }

 private:
  void wake() override;
  void take_in() override;
  int flush() override;

  Progress& progress_;
  engine::OneSidedWay* stream_ = nullptr;
  std::atomic<uint64_t> posts_{0};
  std::atomic<uint64_t> sent_up_to_{0};
};

}  // namespace ddpsock::message

#endif  // DDPSOCK_MESSAGE_BESIDE_STREAM_H_
