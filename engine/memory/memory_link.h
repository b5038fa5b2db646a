// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The way of segments between a queue pair's core and memory shared with the peer (shm).
// Makes no system call but for the memory itself; bells and the end of the connection travel over
// the queue pair's Channel, which stays beside it.
//
// Used by the thread inside advance(). `lock` is the engine's, held; it is let go while long
// payloads are copied.
#ifndef DDPSOCK_ENGINE_MEMORY_MEMORY_LINK_H_
#define DDPSOCK_ENGINE_MEMORY_MEMORY_LINK_H_

#include <array>
#include <cstdint>
#include <mutex>
#include <span>

#include "engine/memory/message_memory.h"
#include "engine/queue/carrier.h"
#include "rdmap/qp.h"

namespace ddpsock::engine {

class MemoryLink {
 public:
  // `memory` and `tap` outlive it; the tap, or nullptr, sees segments as the FPDUs that would carry
  // them.
  explicit MemoryLink(shm::MessageMemory& memory, WireTap* tap = nullptr);

  using Lock = std::unique_lock<std::mutex>;
  // kLost: the peer wrote what it must not, or there is no memory.
  Turn receive(rdmap::Qp& core, Lock& lock, uint32_t budget);
  // Segments of at most `max_ulpdu` bytes; 0: as large as is good.
  Turn transmit(rdmap::Qp& core, Lock& lock, uint32_t max_ulpdu, uint32_t budget);
  // As DirectCarrier; neither rings.
  [[nodiscard]] bool send_directly(rdmap::DirectWay& core, const rdmap::SendWr& wr,
                                   uint32_t max_ulpdu, rdmap::DirectSegment& segment);
  uint32_t receive_directly(rdmap::DirectWay& core, std::span<rdmap::Completion> out);
  // How large that is.
  uint32_t mulpdu(uint32_t wished) const;

  // Whether something has happened that the peer asked to be rung for. Once. `is_last`: nobody may
  // look here before a bell of the peer's.
  [[nodiscard]] bool take_bell(bool is_last);
  // Asks for a bell when records come. False: there are by now.
  [[nodiscard]] bool watch();
  void unwatch();
  // Whether somebody spins here, who takes out and puts in what the ring has no room for at once.
  void note_look(bool is_spinning);
  // Whether somebody does at the other end, by the peer's word.
  bool is_peer_looking() const { return writer_.is_reader_looking(); }
  // ... when the peer takes records. False: it has since we looked.
  [[nodiscard]] bool watch_room() { return writer_.want_room(); }

  // Where in the stream of records the next one lies.
  uint64_t position() const { return reader_.head(); }

  // Of any thread, without the lock.
  bool has_record() const { return reader_.has_record_at_head(); }

  // Whether a bell is wanted when the peer takes records.
  bool awaits_peer() const { return named_count_ != 0; }

  // Tells the core of records that the peer has read.
  void reap(rdmap::Qp& core);

  // Memory that records name is about to be its owner's again.
  void revoke() { writer_.revoke(); }

  // Records of ours that the peer has not taken.
  bool has_unread() { return writer_.head() != writer_.tail(); }

 private:
  // Segments whose memory the peer reads for itself, and those behind them, until it has: the LLP
  // has them meanwhile, as the core sees it.
  struct Named {
    uint64_t end = 0;       // the head is here or beyond once the peer has read it
    uint32_t segments = 0;  // it, and all before the next one
  };
  static constexpr uint32_t kMostNamedRecords = 64;
  // Who sleeps looks once or twice before.
  static constexpr uint32_t kLooksToStay = 4;

  void copy_in(Lock& lock, uint8_t* to, const ddp::Segment& segment);
  void put(rdmap::Qp& core, Lock& lock, const ddp::Segment& segment);
  void name(const ddp::Segment& segment);
  [[nodiscard]] bool place(rdmap::Qp& core, Lock& lock, const shm::MessageReader::Record& record);
  bool read_named(const shm::MessageReader::Record& record, std::span<const MutBytes> to);

  shm::MessageMemory& memory_;
  WireTap* const tap_;
  shm::MessageWriter writer_;
  shm::MessageReader reader_;
  bool is_armed_ = false;
  bool is_looking_ = false;
  uint32_t looks_ = 0;  // in a row that spun
  bool has_published_ = false;
  uint32_t moved_ = 0;  // bytes taken since the writer's question was looked for
  shm::MessageReader::Record record_;
  std::array<Named, kMostNamedRecords> named_;  // a ring
  uint32_t named_first_ = 0, named_count_ = 0;
};

}  // namespace ddpsock::engine

#endif  // DDPSOCK_ENGINE_MEMORY_MEMORY_LINK_H_
