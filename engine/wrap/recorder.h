// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What `ddprun --pcap` and `--trace` write: an Observer (engine/observer.h) of the streams, and the
// wrappers around the engine of queue pairs.
#ifndef DDPSOCK_ENGINE_WRAP_RECORDER_H_
#define DDPSOCK_ENGINE_WRAP_RECORDER_H_

namespace ddpsock::engine::wrap {

// Puts it in place, for good. The texts are those of RecordFile::set(); nullptr: not wanted. Before
// the first connection, and once.
void start_recording(const char* capture, const char* trace);

}  // namespace ddpsock::engine::wrap

#endif  // DDPSOCK_ENGINE_WRAP_RECORDER_H_
