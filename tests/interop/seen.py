# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a judge saw of an iWARP connection: Wireshark (decode.py) and our own reassembly (fpdus.py) fill in the same."""

import collections
import dataclasses

MPA_START_BYTES = 20  # RFC 5044 section 7.1.1, before the private data
FPDU_LENGTH_BYTES, FPDU_CRC_BYTES = 2, 4
TAGGED_HEADER_BYTES, UNTAGGED_HEADER_BYTES = 14, 18  # DDP and RDMAP control included, RFC 5041 section 4
# By opcode (RFC 5040 section 4.3, RFC 7306 section 4).
OPERATIONS = ["Write", "Read Request", "Read Response", "Send", "Send with Invalidate", "Send with SE",
              "Send with SE and Invalidate", "Terminate", "Immediate Data", "Immediate Data with SE", "Atomic Request",
              "Atomic Response"]
TAGGED = {"Write", "Read Response"}
SENDS = {"Send", "Send with Invalidate", "Send with SE", "Send with SE and Invalidate"}


def operation_of(opcode):
    return OPERATIONS[opcode] if opcode < len(OPERATIONS) else f"opcode {opcode}"


def header_bytes(operation):
    return TAGGED_HEADER_BYTES if operation in TAGGED else UNTAGGED_HEADER_BYTES


@dataclasses.dataclass
class Direction:
    stream_bytes: int = 0  # what TCP carried, by sequence numbers
    frame_bytes: int = 0  # what was decoded as MPA
    segments: collections.Counter = dataclasses.field(default_factory=collections.Counter)  # FPDUs by operation
    messages: collections.Counter = dataclasses.field(default_factory=collections.Counter)  # those with the L bit
    bytes_of: collections.Counter = dataclasses.field(default_factory=collections.Counter)  # ULP payload by operation
    largest_ulpdu: int = 0
    # Segments of TCP that do not begin with a frame. What is sent again counts, too.
    unaligned: int = 0
    revision: int | None = None  # of the start-up frame
    has_crc_flag: bool = False
    has_start: bool = False
    has_end: bool = False

    @property
    def fpdus(self):
        return sum(self.segments.values())

    @property
    def payload_bytes(self):
        return sum(self.bytes_of[o] for o in SENDS)

    @property
    def is_accounted(self):
        return self.has_start and self.has_end and self.stream_bytes == self.frame_bytes

    def add_fpdu(self, ulpdu_length, opcode, is_last):
        operation = operation_of(opcode)
        self.segments[operation] += 1
        self.messages[operation] += is_last
        self.bytes_of[operation] += ulpdu_length - header_bytes(operation)


@dataclasses.dataclass
class Connection:
    port: int  # the server's
    to_server: Direction = dataclasses.field(default_factory=Direction)
    to_client: Direction = dataclasses.field(default_factory=Direction)
    has_request: bool = False
    has_reply: bool = False
    is_rejected: bool = False
    is_reset: bool = False
    crc_good: int = 0
    crc_bad: int = 0
    crc_unchecked: int = 0

    @property
    def fpdus(self):
        return self.to_server.fpdus + self.to_client.fpdus

    @property
    def terminates(self):
        return self.to_server.messages["Terminate"] + self.to_client.messages["Terminate"]

    @property
    def is_ddp(self):
        return self.has_request and self.has_reply and not self.is_rejected

    @property
    def is_accounted(self):
        if self.is_reset:  # a reset discards what was under way, so only the frames seen can be judged
            return all(d.has_start for d in (self.to_server, self.to_client))
        return self.to_server.is_accounted and self.to_client.is_accounted
