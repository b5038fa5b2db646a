# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Reads a capture with Wireshark's iWARP dissectors and accounts for every byte of every connection in it.

Wireshark is the judge where it can be: it finds the frames, checks their CRCs and calls them malformed, and the frames of
a connection must add up to the bytes that TCP carried. Where something was sent again, or the capture has segments out of
order or cut in an FPDU's first octets, Wireshark may lose the frames' boundaries. So every connection is put together and
judged by ourselves, too (streams.py, fpdus.py): there our own judgement counts, and a line on standard error tells what
Wireshark saw otherwise; anywhere else a difference is an error.

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
import sys
import threading

import fpdus
import seen
import streams

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

# Wireshark 4.0 knows RFC 5044; RFC 6581 made revision 2 and gave the reserved bits a meaning.
EXPECTED_NOTES = ("Rev field is NOT set to one", "Res field is NOT set to zero")
FRAME_LINE = re.compile(r"^Frame (\d+): ")
CRC_LINE = re.compile(r"^\s+CRC(?: check)?: 0x[0-9a-f]+(?: \((Good|Bad))?")
# A row of Wireshark's expert summary: frequency, group, protocol, summary.
EXPERT_ROW = re.compile(r"^\s+(\d+)\s+(?:(Malformed)\s+\S+|\S+\s+IWARP_\w+)\s{2}(.*)$")


class DecodeError(RuntimeError):
    """The capture could not be read, or is not what it has to be; the message says all that is wrong."""


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
    ended = sum(c.terminates for c in d.connections)
    if terminates is not None and ended != terminates:
        yield f"{ended} Terminate messages, expected {terminates}"
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
        connections, first_frames, of_frame = {stream: seen.Connection(port) for stream, port in servers.items()}, {}, {}
        for row in rows:
            if connection := connections.get(row["tcp.stream"]):
                frame = int(row["frame.number"])
                of_frame[frame] = connection
                first_frames.setdefault(row["tcp.stream"], frame)
                _read_row(row, row["tcp.dstport"] in ports, connection)
        result = Decoded(connections=[])
        _read_verdicts(verdicts, of_frame, result)
    if not rows:
        raise DecodeError(f"{path}: the capture holds no packet")
    result.connections = list(connections.values())
    _judge_ourselves(path, first_frames, result)
    return result


def _judge_ourselves(path, first_frames, result):
    """Checks what Wireshark made of each connection, and replaces it where it cannot know.

    `first_frames` has Wireshark's number of each connection and that of its first packet, in the order of the result's.
    """
    try:
        of_frame = {c.frame: c for c in streams.read(path)}
        own = [fpdus.judge(of_frame[frame], c.port) for frame, c in zip(first_frames.values(), result.connections, strict=True)]
    except (streams.StreamsError, fpdus.FpdusError) as error:
        raise DecodeError(str(error)) from None
    told = [_differences(c, judged.connection) for c, judged in zip(result.connections, own)]
    lost = [stream for stream, judged, differences in zip(first_frames, own, told)
            if judged.why_wireshark_fails and (differences or judged.malformed)]
    if lost:
        # What it makes of frames whose boundaries it has lost is no fault of theirs.
        result.notes.clear()
        result.malformed.clear()
        with _tshark(path, "-q", "-z", f"expert,not tcp.stream in {{{','.join(lost)}}}") as lines:
            _read_verdicts(lines, {}, result)
    for number, (judged, differences) in enumerate(zip(own, told)):
        if judged.why_wireshark_fails:
            result.connections[number] = judged.connection
            result.malformed.update(judged.malformed)
            if differences:
                print(f"{path}: connection {number}: {judged.why_wireshark_fails}, and Wireshark lost the frames; "
                      f"our own reassembly counts: {differences}", file=sys.stderr)
        elif differences:
            result.malformed[f"connection {number} is not what our own reassembly sees: {differences}"] += 1


def _differences(wireshark, own):
    """What the two saw otherwise, empty if nothing."""
    def counted(c):
        return {"FPDUs": c.fpdus, "CRCs good": c.crc_good, "bad": c.crc_bad, "not used": c.crc_unchecked,
                **{f"{name} {what}": getattr(way, what) for name, way in (("to server", c.to_server), ("to client", c.to_client))
                   for what in ("frame_bytes", "stream_bytes", "segments", "messages", "bytes_of", "largest_ulpdu", "revision")}}
    ours = counted(own)
    return ", ".join(f"{what}: Wireshark {value}, ours {ours[what]}" for what, value in counted(wireshark).items()
                     if value != ours[what])


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
    if flags & streams.SYN:
        direction.has_start = True
        return
    direction.unaligned += length > 0 and sequence != direction.frame_bytes + 1
    # The first byte has relative sequence number 1; a bare acknowledgement after FIN stands one beyond the last.
    if length or flags & streams.FIN:
        direction.stream_bytes = max(direction.stream_bytes, sequence + length - 1)
    direction.has_end |= bool(flags & streams.FIN)
    connection.is_reset |= bool(flags & streams.RST)


def _read_frames(row, connection, direction):
    connection.has_request |= bool(row["iwarp_mpa.req"])
    connection.has_reply |= bool(row["iwarp_mpa.rep"])
    connection.is_rejected |= row["iwarp_mpa.rej_flag"] in ("1", "True")
    if row["iwarp_mpa.rev"]:
        direction.revision = _numbers(row["iwarp_mpa.rev"])[0]
        direction.has_crc_flag = row["iwarp_mpa.crc_flag"].split(",")[0] in ("1", "True")
    direction.frame_bytes += sum(seen.MPA_START_BYTES + n for n in _numbers(row["iwarp_mpa.pdlength"]))
    lengths, opcodes = _numbers(row["iwarp_mpa.ulpdulength"]), _numbers(row["iwarp_rdma.opcode"])
    lasts = [last in ("1", "True") for last in row["iwarp_ddp.last_flag"].split(",")]
    for length in lengths:
        framed = seen.FPDU_LENGTH_BYTES + length
        direction.frame_bytes += framed + -framed % 4 + seen.FPDU_CRC_BYTES
        direction.largest_ulpdu = max(direction.largest_ulpdu, length)
    for length, opcode, is_last in zip(lengths, opcodes, lasts):
        direction.add_fpdu(length, opcode, is_last)


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
