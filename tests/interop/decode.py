# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Reads a capture with Wireshark's iWARP dissectors and accounts for every byte of every connection in it.

Wireshark is the judge: it finds the frames, checks their CRCs and calls them malformed. What is computed here is only
whether it saw everything: the frames of a connection must add up to the bytes that TCP carried.

    import decode
    seen = decode.check("run.pcap", 7174)              # CRC on, no Terminate, every connection orderly and whole
    seen = decode.check("run.pcap", 7174, crc=False)   # no FPDU may have its CRC checked
    [connection] = seen.connections
    connection.to_server.messages["Read Response"]     # how many, by Wireshark's names (OPERATIONS)

One capture may serve several servers: give a set of ports, and look at decoded.of_port(port) for each.

check() raises DecodeError with one line for each thing that is wrong; so it does when tshark is missing, the file is
missing, empty or damaged, or nothing in it is iWARP. complaints() tells the same about what decode() returned, for
callers that want to look first. One capture holds runs with CRC or runs without, not both, or say crc=None and look at
each connection.
"""

import collections
import contextlib
import dataclasses
import os
import re
import shutil
import subprocess
import threading

TSHARK = ["tshark", "-n", "-o", "tcp.try_heuristic_first:TRUE",
          # Two processors write to one capture, so segments change places in it.
          "-o", "tcp.reassemble_out_of_order:TRUE", "-o", "tcp.relative_sequence_numbers:TRUE",
          # These guess at protocols inside a Send and call a program's own bytes malformed.
          "--disable-protocol", "rpcordma", "--disable-protocol", "smb_direct"]
TSHARK_SECONDS = 600
FIELDS = ["frame.number", "tcp.stream", "tcp.dstport", "tcp.flags", "tcp.seq", "tcp.len", "iwarp_mpa.req",
          "iwarp_mpa.rep", "iwarp_mpa.rej_flag", "iwarp_mpa.rev", "iwarp_mpa.crc_flag", "iwarp_mpa.pdlength",
          "iwarp_mpa.ulpdulength", "iwarp_rdma.opcode", "iwarp_ddp.last_flag"]
SEPARATOR = "|"

FIN, SYN, RST = 0x01, 0x02, 0x04
MPA_START_BYTES = 20  # RFC 5044 section 7.1.1, before the private data
FPDU_LENGTH_BYTES, FPDU_CRC_BYTES = 2, 4
TAGGED_HEADER_BYTES, UNTAGGED_HEADER_BYTES = 14, 18  # DDP and RDMAP control included, RFC 5041 section 4
# By opcode (RFC 5040 section 4.3, RFC 7306 section 4).
OPERATIONS = ["Write", "Read Request", "Read Response", "Send", "Send with Invalidate", "Send with SE",
              "Send with SE and Invalidate", "Terminate", "Immediate Data", "Immediate Data with SE", "Atomic Request",
              "Atomic Response"]
TAGGED = {"Write", "Read Response"}
SENDS = {"Send", "Send with Invalidate", "Send with SE", "Send with SE and Invalidate"}

# Wireshark 4.0 knows RFC 5044; RFC 6581 made revision 2 and gave the reserved bits a meaning.
EXPECTED_NOTES = ("Rev field is NOT set to one", "Res field is NOT set to zero")
FRAME_LINE = re.compile(r"^Frame (\d+): ")
CRC_LINE = re.compile(r"^\s+CRC(?: check)?: 0x[0-9a-f]+(?: \((Good|Bad))?")
# A row of Wireshark's expert summary: frequency, group, protocol, summary.
EXPERT_ROW = re.compile(r"^\s+(\d+)\s+(?:(Malformed)\s+\S+|\S+\s+IWARP_\w+)\s{2}(.*)$")


class DecodeError(RuntimeError):
    """The capture could not be read, or is not what it has to be; the message says all that is wrong."""


@dataclasses.dataclass
class Direction:
    stream_bytes: int = 0  # what TCP carried, by sequence numbers
    frame_bytes: int = 0  # what Wireshark decoded as MPA
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


@dataclasses.dataclass
class Decoded:
    connections: list
    malformed: collections.Counter = dataclasses.field(default_factory=collections.Counter)  # frames by what is wrong
    notes: collections.Counter = dataclasses.field(default_factory=collections.Counter)  # the expected ones

    def _sum(self, name):
        return sum(getattr(c, name) for c in self.connections)

    @property
    def fpdus(self):
        return self._sum("fpdus")

    @property
    def crc_good(self):
        return self._sum("crc_good")

    @property
    def crc_bad(self):
        return self._sum("crc_bad")

    @property
    def crc_unchecked(self):
        return self._sum("crc_unchecked")

    def of_port(self, port):
        """Only the connections to that server, in the order of their beginning. What is malformed stays the capture's."""
        return dataclasses.replace(self, connections=[c for c in self.connections if c.port == port])

    @property
    def payload_bytes(self):
        return sum(c.to_server.payload_bytes + c.to_client.payload_bytes for c in self.connections)


def check(path, ports, **expected):
    """What decode() returns, if it is what is expected; DecodeError otherwise. `expected` as for complaints()."""
    decoded = decode(path, ports)
    wrong = list(complaints(decoded, **expected))
    if wrong:
        raise DecodeError("\n".join([f"{path}:", *(f"  {line}" for line in wrong)]))
    return decoded


def complaints(decoded, *, crc=True, connections=None, terminates=0, is_cut=False):
    """What is wrong, a line each.

    crc: every FPDU's CRC is checked and good; False: none is checked; None: none is bad.
    connections: how many there are; None: at least one.
    terminates: how many Terminate messages there are; None: any number.
    is_cut: connections may end anyhow, or not at all, and be incomplete then.
    """
    d = decoded
    if not d.connections:
        yield "there is no TCP connection to that port in the capture"
    elif not any(c.has_request or c.fpdus for c in d.connections):
        yield f"nothing is iWARP in the {len(d.connections)} connections of the capture"
    if connections is not None and len(d.connections) != connections:
        yield f"{len(d.connections)} connections, expected {connections}"
    for number, c in enumerate(d.connections):
        if not c.is_ddp:
            yield f"connection {number} did not come to DDP: {c}"
        elif not is_cut and not c.is_accounted:
            yield f"connection {number}: Wireshark did not decode every byte of it: {c}"
    yield from _crc_complaints(d, crc)
    seen = sum(c.terminates for c in d.connections)
    if terminates is not None and seen != terminates:
        yield f"{seen} Terminate messages, expected {terminates}"
    for what, count in d.malformed.items():
        yield f"{count} x {what}"


def _crc_complaints(d, crc):
    if d.crc_bad:
        yield f"{d.crc_bad} CRCs are bad"
    if crc is True and d.crc_good != d.fpdus:
        yield f"{d.crc_good} of {d.fpdus} CRCs good, {d.crc_bad} bad, {d.crc_unchecked} not used"
    if crc is False and d.crc_unchecked != d.fpdus:
        yield f"{d.crc_good + d.crc_bad} of {d.fpdus} CRCs were in use, expected none"


def decode(path, ports):
    """Everything about the TCP connections of the capture at `path` to a port, or to one of several.

    Wireshark remembers a connection by its addresses and ports, so a client's port that is used again within a capture
    is misread; a server's port for each connection avoids it.

    DecodeError: tshark is missing, or cannot read the file, or there is no packet in it.
    """
    if not shutil.which("tshark"):
        raise DecodeError("tshark is not installed, so no capture can be judged; apt-get install tshark")
    if not os.path.isfile(path):
        raise DecodeError(f"{path}: there is no such capture")
    ports = {str(p) for p in ([ports] if isinstance(ports, int) else ports)}
    fields = [a for f in FIELDS for a in ("-e", f)]
    # Both at once: one processor each.
    with (_tshark(path, "-T", "fields", "-E", f"separator={SEPARATOR}", "-E", "occurrence=a", *fields) as lines,
          _tshark(path, "-V", "-O", "iwarp_mpa", "-z", "expert") as verdicts):
        rows = [dict(zip(FIELDS, line.rstrip("\n").split(SEPARATOR))) for line in lines]
        servers = {row["tcp.stream"]: int(row["tcp.dstport"]) for row in rows if row["tcp.dstport"] in ports}
        connections, of_frame = {stream: Connection(port) for stream, port in servers.items()}, {}
        for row in rows:
            if connection := connections.get(row["tcp.stream"]):
                of_frame[int(row["frame.number"])] = connection
                _read_row(row, row["tcp.dstport"] in ports, connection)
        result = Decoded(connections=[])
        _read_verdicts(verdicts, of_frame, result)
    if not rows:
        raise DecodeError(f"{path}: the capture holds no packet")
    result.connections = list(connections.values())
    return result


@contextlib.contextmanager
def _tshark(path, *arguments):
    """The lines it prints."""
    with subprocess.Popen([*TSHARK, "-r", path, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, errors="replace") as process:
        said = []
        # A full pipe of messages would stop it.
        listener = threading.Thread(target=lambda: said.extend(process.stderr))
        limit = threading.Timer(TSHARK_SECONDS, process.kill)
        listener.start()
        limit.start()
        try:
            yield process.stdout
        finally:
            for _ in process.stdout:
                pass
            process.wait()
            limit.cancel()
            listener.join()
    if process.returncode != 0:
        raise DecodeError(f"tshark could not read {path} (status {process.returncode}): {''.join(said).strip()}")


def _numbers(text):
    return [int(t, 0) for t in text.split(",") if t]


def _read_row(row, is_to_server, connection):
    direction = connection.to_server if is_to_server else connection.to_client
    _read_tcp(row, connection, direction)
    _read_frames(row, connection, direction)


def _read_tcp(row, connection, direction):
    flags, sequence, length = int(row["tcp.flags"], 0), int(row["tcp.seq"]), int(row["tcp.len"])
    if flags & SYN:
        direction.has_start = True
        return
    direction.unaligned += length > 0 and sequence != direction.frame_bytes + 1
    # The first byte has relative sequence number 1; a bare acknowledgement after FIN stands one beyond the last.
    if length or flags & FIN:
        direction.stream_bytes = max(direction.stream_bytes, sequence + length - 1)
    direction.has_end |= bool(flags & FIN)
    connection.is_reset |= bool(flags & RST)


def _read_frames(row, connection, direction):
    connection.has_request |= bool(row["iwarp_mpa.req"])
    connection.has_reply |= bool(row["iwarp_mpa.rep"])
    connection.is_rejected |= row["iwarp_mpa.rej_flag"] in ("1", "True")
    if row["iwarp_mpa.rev"]:
        direction.revision = _numbers(row["iwarp_mpa.rev"])[0]
        direction.has_crc_flag = row["iwarp_mpa.crc_flag"].split(",")[0] in ("1", "True")
    direction.frame_bytes += sum(MPA_START_BYTES + n for n in _numbers(row["iwarp_mpa.pdlength"]))
    lengths, opcodes = _numbers(row["iwarp_mpa.ulpdulength"]), _numbers(row["iwarp_rdma.opcode"])
    lasts = [last in ("1", "True") for last in row["iwarp_ddp.last_flag"].split(",")]
    for length in lengths:
        framed = FPDU_LENGTH_BYTES + length
        direction.frame_bytes += framed + -framed % 4 + FPDU_CRC_BYTES
        direction.largest_ulpdu = max(direction.largest_ulpdu, length)
    for length, opcode, is_last in zip(lengths, opcodes, lasts):
        operation = OPERATIONS[opcode] if opcode < len(OPERATIONS) else f"opcode {opcode}"
        direction.segments[operation] += 1
        direction.messages[operation] += is_last
        direction.bytes_of[operation] += length - (TAGGED_HEADER_BYTES if operation in TAGGED else
                                                   UNTAGGED_HEADER_BYTES)


def _read_verdicts(lines, of_frame, result):
    connection = None
    for line in lines:
        if match := FRAME_LINE.match(line):
            connection = of_frame.get(int(match[1]))
        elif match := EXPERT_ROW.match(line):
            is_expected = not match[2] and match[3].startswith(EXPECTED_NOTES)
            (result.notes if is_expected else result.malformed)[match[3]] += int(match[1])
        elif connection and (match := CRC_LINE.match(line)):
            connection.crc_good += match[1] == "Good"
            connection.crc_bad += match[1] == "Bad"
            connection.crc_unchecked += match[1] is None
