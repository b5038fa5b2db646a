# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Reads a capture with Wireshark's iWARP dissectors and accounts for every byte of every connection in it.

Wireshark is the judge: it finds the frames, checks their CRCs and calls them malformed. What is computed here is only
whether it saw everything: the frames of a connection must add up to the bytes that TCP carried.
"""

import collections
import dataclasses
import re
import subprocess

TSHARK = ["tshark", "-n", "-o", "tcp.try_heuristic_first:TRUE",
          # Two processors write to one capture, so segments change places in it.
          "-o", "tcp.reassemble_out_of_order:TRUE", "-o", "tcp.relative_sequence_numbers:TRUE",
          # These guess at protocols inside a Send and call a program's own bytes malformed.
          "--disable-protocol", "rpcordma", "--disable-protocol", "smb_direct"]
FIELDS = ["tcp.stream", "tcp.dstport", "tcp.flags", "tcp.seq", "tcp.len", "iwarp_mpa.req", "iwarp_mpa.rep",
          "iwarp_mpa.rej_flag", "iwarp_mpa.pdlength", "iwarp_mpa.ulpdulength", "iwarp_rdma.opcode"]
SEPARATOR = "|"

FIN, SYN, RST = 0x01, 0x02, 0x04
MPA_START_BYTES = 20  # RFC 5044 section 7.1.1, before the private data
FPDU_LENGTH_BYTES, FPDU_CRC_BYTES = 2, 4
UNTAGGED_HEADER_BYTES = 18  # DDP and RDMAP control, RFC 5041 section 4.3
SENDS = {3, 4, 5, 6}
TERMINATE = 7

# Wireshark 4.0 knows RFC 5044; RFC 6581 made revision 2 and gave the reserved bits a meaning.
EXPECTED_NOTES = ("Rev field is NOT set to one", "Res field is NOT set to zero")
CRC_LINE = re.compile(r"^\s+CRC(?: check)?: 0x[0-9a-f]+(?: \((Good|Bad))?")
# A row of Wireshark's expert summary: frequency, group, protocol, summary.
EXPERT_ROW = re.compile(r"^\s+(\d+)\s+(?:(Malformed)\s+\S+|\S+\s+IWARP_\w+)\s{2}(.*)$")


@dataclasses.dataclass
class Direction:
    stream_bytes: int = 0  # what TCP carried, by sequence numbers
    frame_bytes: int = 0  # what Wireshark decoded as MPA
    payload_bytes: int = 0  # what the Sends carried
    has_start: bool = False
    has_end: bool = False

    @property
    def is_accounted(self):
        return self.has_start and self.has_end and self.stream_bytes == self.frame_bytes


@dataclasses.dataclass
class Connection:
    to_server: Direction = dataclasses.field(default_factory=Direction)
    to_client: Direction = dataclasses.field(default_factory=Direction)
    has_request: bool = False
    has_reply: bool = False
    is_rejected: bool = False
    is_reset: bool = False
    fpdus: int = 0
    terminates: int = 0

    @property
    def is_ddp(self):
        return self.has_request and self.has_reply and not self.is_rejected

    @property
    def is_accounted(self):
        if self.is_reset:  # a reset discards what was under way, so only the frames seen can be judged
            return all(d.has_start for d in (self.to_server, self.to_client))
        return self.to_server.is_accounted and self.to_client.is_accounted


@dataclasses.dataclass
class Decoded:
    connections: list
    crc_good: int = 0
    crc_bad: int = 0
    crc_unchecked: int = 0
    malformed: collections.Counter = dataclasses.field(default_factory=collections.Counter)  # frames by what is wrong
    notes: collections.Counter = dataclasses.field(default_factory=collections.Counter)  # the expected ones

    @property
    def fpdus(self):
        return sum(c.fpdus for c in self.connections)

    @property
    def payload_bytes(self):
        return sum(c.to_server.payload_bytes + c.to_client.payload_bytes for c in self.connections)


def decode(path, server_port):
    """Everything about the connections of the capture at `path` whose server listens on `server_port`."""
    verdicts = subprocess.Popen([*TSHARK, "-r", path, "-V", "-O", "iwarp_mpa", "-z", "expert"], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace")
    fields = [a for f in FIELDS for a in ("-e", f)]
    rows = subprocess.Popen([*TSHARK, "-r", path, "-Y", "tcp", "-T", "fields", "-E", f"separator={SEPARATOR}",
                             "-E", "occurrence=a", *fields], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, text=True, errors="replace")
    connections = collections.defaultdict(Connection)
    result = Decoded(connections=[])
    with rows, verdicts:
        for line in rows.stdout:
            _read_row(dict(zip(FIELDS, line.rstrip("\n").split(SEPARATOR))), server_port, connections)
        _read_verdicts(verdicts.stdout, result)
    if rows.returncode != 0 or verdicts.returncode != 0:
        raise RuntimeError(f"tshark could not read {path}")
    result.connections = list(connections.values())
    return result


def _numbers(text):
    return [int(t, 0) for t in text.split(",") if t]


def _read_row(row, server_port, connections):
    connection = connections[int(row["tcp.stream"])]
    is_to_server = int(row["tcp.dstport"]) == server_port
    direction = connection.to_server if is_to_server else connection.to_client
    _read_tcp(row, connection, direction)
    _read_frames(row, connection, direction)


def _read_tcp(row, connection, direction):
    flags, sequence, length = int(row["tcp.flags"], 0), int(row["tcp.seq"]), int(row["tcp.len"])
    if flags & SYN:
        direction.has_start = True
        return
    # The first byte has relative sequence number 1; a bare acknowledgement after FIN stands one beyond the last.
    if length or flags & FIN:
        direction.stream_bytes = max(direction.stream_bytes, sequence + length - 1)
    direction.has_end |= bool(flags & FIN)
    connection.is_reset |= bool(flags & RST)


def _read_frames(row, connection, direction):
    connection.has_request |= bool(row["iwarp_mpa.req"])
    connection.has_reply |= bool(row["iwarp_mpa.rep"])
    connection.is_rejected |= row["iwarp_mpa.rej_flag"] in ("1", "True")
    direction.frame_bytes += sum(MPA_START_BYTES + n for n in _numbers(row["iwarp_mpa.pdlength"]))
    lengths, opcodes = _numbers(row["iwarp_mpa.ulpdulength"]), _numbers(row["iwarp_rdma.opcode"])
    connection.fpdus += len(lengths)
    connection.terminates += opcodes.count(TERMINATE)
    for length in lengths:
        framed = FPDU_LENGTH_BYTES + length
        direction.frame_bytes += framed + -framed % 4 + FPDU_CRC_BYTES
    direction.payload_bytes += sum(n - UNTAGGED_HEADER_BYTES for n, o in zip(lengths, opcodes) if o in SENDS)


def _read_verdicts(lines, result):
    for line in lines:
        if match := CRC_LINE.match(line):
            result.crc_good += match[1] == "Good"
            result.crc_bad += match[1] == "Bad"
            result.crc_unchecked += match[1] is None
        elif match := EXPERT_ROW.match(line):
            is_expected = not match[2] and match[3].startswith(EXPECTED_NOTES)
            (result.notes if is_expected else result.malformed)[match[3]] += int(match[1])
