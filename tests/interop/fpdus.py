# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Cuts FPDUs out of a connection that streams.py has put together, and judges each: CRC, headers, what it carries."""

import collections
import ctypes
import dataclasses
import functools
import struct

import seen
from frames import FLAG_CRC, FLAG_REJECT, READ_REQUEST, REPLY_KEY, REQUEST_KEY

FLAG_MARKERS = 0x80
MARKER_BYTES, MARKER_SPACING = 4, 512  # RFC 5044 section 4.3
DDP_TAGGED, DDP_LAST = 0x80, 0x40
READ_REQUEST_BYTES = 28  # RFC 5040 section 4.4
# Wireshark 4.0 loses the frames' boundaries where a segment ends with less of an FPDU than this.
WIRESHARK_NEEDS_BYTES = 8
ISAL = "libisal.so.2"  # which the library is linked with


class FpdusError(Exception):
    """Nothing can be judged on this machine."""


@functools.cache
def _crc_function():
    try:
        function = ctypes.CDLL(ISAL).crc32_iscsi
    except OSError as error:
        raise FpdusError(f"{error}; apt-get install libisal2") from None
    function.argtypes, function.restype = [ctypes.c_char_p, ctypes.c_int, ctypes.c_uint], ctypes.c_uint
    return function


def crc32c(octets):
    return _crc_function()(bytes(octets), len(octets), 0xFFFFFFFF) ^ 0xFFFFFFFF


@dataclasses.dataclass
class Judged:
    connection: seen.Connection
    malformed: collections.Counter = dataclasses.field(default_factory=collections.Counter)  # by what is wrong
    why_wireshark_fails: str = ""  # what loses it the frames' boundaries, if anything


def judge(tcp, port):
    """A connection to the server at `port`."""
    result = Judged(seen.Connection(port, is_reset=tcp.is_reset))
    found = result.connection
    ends = sorted(tcp.halves, key=lambda end: end[1] == port)  # the client first
    ways = list(zip([tcp.halves[end] for end in ends], [found.to_server, found.to_client], strict=True))
    starts = [_read_start(half, way, found) for half, way in ways]
    has_crc = any(flags & FLAG_CRC for flags, _ in starts)
    for (half, way), (_, at), (peers_flags, _) in zip(ways, starts, reversed(starts)):
        way.stream_bytes, way.has_start, way.has_end = half.stream_bytes, half.has_start, half.has_end
        frames = {0} | (_read_fpdus(half.octets, at, bool(peers_flags & FLAG_MARKERS), has_crc, way, result) if at else set())
        way.unaligned = sum(begin not in frames for begin in half.begins)
        if any(begin - n in frames for begin in half.begins if begin not in frames for n in range(WIRESHARK_NEEDS_BYTES)):
            result.why_wireshark_fails = "a segment ends with the first octets of an FPDU"
        if half.changed:
            result.malformed["segment sent again with other octets"] += half.changed
    if tcp.is_disturbed:
        result.why_wireshark_fails = "segments were sent again or out of order"
    return result


def _read_start(half, way, found):
    """Flags of the start-up frame and where it ends, 0 without one."""
    octets = half.octets
    key = bytes(octets[:len(REQUEST_KEY)])
    if key not in (REQUEST_KEY, REPLY_KEY) or len(octets) < seen.MPA_START_BYTES:
        return 0, 0
    flags, way.revision, private = struct.unpack_from(">BBH", octets, len(key))
    end = seen.MPA_START_BYTES + private
    if len(octets) < end:
        return 0, 0
    found.has_request |= key == REQUEST_KEY
    found.has_reply |= key == REPLY_KEY
    found.is_rejected |= key == REPLY_KEY and bool(flags & FLAG_REJECT)
    way.has_crc_flag = bool(flags & FLAG_CRC)
    way.frame_bytes = end
    return flags, end


def _read_fpdus(octets, begin, has_markers, has_crc, way, result):
    """Where the frames behind the start-up frame begin."""
    stream, at, begins = memoryview(octets)[begin:], 0, {begin}
    while fpdu := _cut(stream, at, has_markers):
        ulpdu, crc_at, after = fpdu
        framed = seen.FPDU_LENGTH_BYTES + len(ulpdu)
        way.frame_bytes += framed + -framed % 4 + seen.FPDU_CRC_BYTES
        way.largest_ulpdu = max(way.largest_ulpdu, len(ulpdu))
        if not has_crc:
            result.connection.crc_unchecked += 1
        else:
            is_good = struct.unpack_from("<I", stream, crc_at)[0] == crc32c(stream[at:crc_at])
            result.connection.crc_good += is_good
            result.connection.crc_bad += not is_good
        _read_ulpdu(ulpdu, way, result.malformed)
        at = after
        begins.add(begin + at)
    return begins


def _cut(stream, at, has_markers):
    """(ULPDU, where the CRC stands, where the next FPDU begins), or None if it is not whole."""
    after, header = _skip(stream, at, seen.FPDU_LENGTH_BYTES, has_markers)
    if len(header) < seen.FPDU_LENGTH_BYTES:
        return None
    length = int.from_bytes(header)
    padding = -(seen.FPDU_LENGTH_BYTES + length) % 4
    after, ulpdu = _skip(stream, after, length + padding, has_markers)
    end, crc = _skip(stream, after, seen.FPDU_CRC_BYTES, has_markers)
    return None if len(crc) < seen.FPDU_CRC_BYTES else (ulpdu[:length], end - seen.FPDU_CRC_BYTES, end)


def _skip(stream, at, count, has_markers):
    """Where `count` octets that are no Markers end, and those of them that are there."""
    if not has_markers:
        return at + count, stream[at:at + count]
    taken, left = b"", count
    while left:
        at += MARKER_BYTES if at % MARKER_SPACING == 0 else 0
        piece = min(left, MARKER_SPACING - at % MARKER_SPACING)
        taken += stream[at:at + piece]
        at, left = at + piece, left - piece
    return at, taken


def _read_ulpdu(ulpdu, way, malformed):
    """RFC 5041 section 4, RFC 5040 section 4."""
    if len(ulpdu) < 2:
        malformed["ULPDU without a header"] += 1
        return
    ddp, opcode = ulpdu[0], ulpdu[1] & 0xF
    operation = seen.operation_of(opcode)
    way.add_fpdu(len(ulpdu), opcode, bool(ddp & DDP_LAST))
    if len(ulpdu) < seen.header_bytes(operation):
        malformed[f"{operation} that ends inside its header"] += 1
    elif bool(ddp & DDP_TAGGED) != (operation in seen.TAGGED):
        malformed[f"{operation} with the wrong kind of header"] += 1
    elif opcode >= len(seen.OPERATIONS):
        malformed[operation] += 1
    elif opcode == READ_REQUEST and len(ulpdu) != seen.UNTAGGED_HEADER_BYTES + READ_REQUEST_BYTES:
        malformed[f"Read Request of {len(ulpdu) - seen.UNTAGGED_HEADER_BYTES} octets"] += 1
