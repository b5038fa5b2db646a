// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// One line per connection when DDPSOCK_LOG=info: who the peer is, the verdict and why. To stderr,
// unless that is a TCP connection or not the file that it was at start, or appended to
// DDPSOCK_LOG_FILE. Silent otherwise, and never a descriptor kept open: programs
// close, count and reuse them all.
#ifndef DDPSOCK_SHIM_LOG_H_
#define DDPSOCK_SHIM_LOG_H_

namespace ddpsock::shim {

// Reads the environment once. False unless DDPSOCK_LOG=info.
bool is_logging();

// `event` says how the connection came about ("connect", "accept", "upgrade", "fallback"), `mode`
// what it is ("stream", "plain"). Writes one line with one write(); an error is ignored. errno is
// kept.
void log_connection(const char* event, int fd, const char* mode, const char* engine,
                    const char* reason);

// A program is executed that the library will not be in, `why` not: names the inheritable
// descriptors of ours that are in DDPMODE, if there are any. As above; async-signal-safe but for
// the first call.
void log_exec(const char* path, const char* why);

}  // namespace ddpsock::shim

#endif  // DDPSOCK_SHIM_LOG_H_
