// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How a connection ends early: with the right Terminate (RFC 5040 section 4.8) where one can still
// be sent, a reason kept for DDP_STATUS, and an errno for the program. Nothing else is disturbed.
#ifndef DDPSOCK_STREAM_FAILURE_H_
#define DDPSOCK_STREAM_FAILURE_H_

#include "rdmap/terminate.h"
#include "stream/connection.h"

namespace ddpsock::engine {

// Each ends the connection and returns the errno that the call in progress reports. `why` is a
// constant.
int fail_protocol(Connection& c, int fd, rdmap::TermCode code, Bytes segment);
int fail_crc(Connection& c, int fd);
int fail_lost(Connection& c, int fd, const char* why);
// The peer's stream is over, and its last FPDU is not whole. 0: by a reset of which another call
// has told, so that there is only an end.
int fail_cut(Connection& c, int fd);
int fail_refused(Connection& c, int fd, int error, const char* why);

// The same for who has the error told elsewhere.
void end_connection(Connection& c, int fd, const char* why);

// An FPDU that is not stream data, whole or in part. 0: it meant nothing here. EPROTOTYPE: the
// peer's direction is plain behind it. Another errno value: the connection has ended.
int take_control(Connection& c, int fd, Bytes fpdu);
// The same, where no queue pair takes it.
int refuse_control(Connection& c, int fd, Bytes fpdu);

}  // namespace ddpsock::engine

#endif  // DDPSOCK_STREAM_FAILURE_H_
