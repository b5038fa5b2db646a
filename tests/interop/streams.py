# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The TCP connections of a capture put together again, without Wireshark: by sequence number, what is sent again dropped.

    for connection in streams.read("run.pcap"):
        connection.frame            # Wireshark's number of its first packet
        connection.is_disturbed     # something was sent again, came out of order or is missing
        connection.halves           # (address, port) of the sender -> Half
"""

import dataclasses
import struct

FIN, SYN, RST = 0x01, 0x02, 0x04
# Magic number -> byte order, of files with microseconds and with nanoseconds.
PCAP = {b"\xd4\xc3\xb2\xa1": "<", b"\xa1\xb2\xc3\xd4": ">", b"\x4d\x3c\xb2\xa1": "<", b"\xa1\xb2\x3c\x4d": ">"}
# Link type -> octets before the type of what follows; None: IP at once.
LINKS = {1: 12, 101: None, 113: 14}
IPV4, IPV6, VLAN = 0x0800, 0x86DD, 0x8100
TCP = 6


class StreamsError(Exception):
    """The file is no capture that can be read."""


@dataclasses.dataclass
class Half:
    """What one end sent."""
    octets: bytearray = dataclasses.field(default_factory=bytearray)  # as far as there is no hole
    # Where each segment with octets begins, in the order of the capture; what is sent again too.
    begins: list = dataclasses.field(default_factory=list)
    stream_bytes: int = 0  # as far as a segment or the end was seen
    changed: int = 0  # segments that repeat octets, but others than before
    has_start: bool = False
    has_end: bool = False
    is_disturbed: bool = False
    _first: int | None = None  # sequence number of octets[0]
    _early: list = dataclasses.field(default_factory=list)  # behind a hole

    def is_other(self, sequence):
        """Whether a SYN of that number begins another connection."""
        return self._first not in (None, sequence + 1)

    def take(self, sequence, flags, data):
        if flags & SYN:
            self._first, self.has_start = sequence + 1, True
            return
        if self._first is None:
            self._first = sequence
        # Sequence numbers wrap; nothing is 2 GB away.
        at = (sequence - self._first - self.stream_bytes + (1 << 31)) % (1 << 32) - (1 << 31) + self.stream_bytes
        if data:
            self.is_disturbed |= at != self.stream_bytes
            self.begins.append(at)
            self._early.append((at, data))
            self._join()
        if data or flags & FIN:
            self.stream_bytes = max(self.stream_bytes, at + len(data))
        self.has_end |= bool(flags & FIN)

    def _join(self):
        self._early.sort(key=lambda piece: piece[0])
        while self._early and self._early[0][0] <= len(self.octets):
            at, data = self._early.pop(0)
            at, data = max(at, 0), data[max(-at, 0):]
            known = len(self.octets) - at
            self.changed += self.octets[at:at + len(data)] != data[:known]
            self.octets += data[known:]


@dataclasses.dataclass
class Connection:
    frame: int
    halves: dict
    is_reset: bool = False

    @property
    def is_disturbed(self):
        return any(h.is_disturbed for h in self.halves.values())


def read(path):
    """All of them, in the order of their beginning."""
    found, current = [], {}
    for number, (source, target, sequence, flags, data) in _segments(path):
        key = frozenset((source, target))
        known = current.get(key)
        if not known or flags & SYN and known.halves[source].is_other(sequence):
            known = current[key] = Connection(number, {source: Half(), target: Half()})
            found.append(known)
        known.halves[source].take(sequence, flags, data)
        known.is_reset |= bool(flags & RST)
    return found


def _segments(path):
    """Number of the packet and what is in it, of each that is TCP."""
    with open(path, "rb") as file:
        header = file.read(24)
        order = PCAP.get(header[:4])
        if len(header) < 24 or not order:
            raise StreamsError(f"{path}: this is no pcap file")
        link = struct.unpack(f"{order}I", header[20:])[0] & 0xFFFF
        if link not in LINKS:
            raise StreamsError(f"{path}: packets of link type {link} are not known here")
        number = 0
        while head := file.read(16):
            number += 1
            kept, size = struct.unpack(f"{order}II", head[8:]) if len(head) == 16 else (0, 1)
            packet = file.read(kept)
            if len(packet) < size:
                raise StreamsError(f"{path}: packet {number} is not whole")
            try:
                segment = _segment(packet, LINKS[link])
            except (IndexError, struct.error):
                raise StreamsError(f"{path}: packet {number} ends inside a header") from None
            if segment:
                yield number, segment


def _segment(packet, type_at):
    """(source, target, sequence number, flags, octets), or None if it is no TCP."""
    if type_at is None:
        kind, at = {4: IPV4, 6: IPV6}.get(packet[0] >> 4), 0
    else:
        kind, at = struct.unpack_from(">H", packet, type_at)[0], type_at + 2
        if kind == VLAN:
            kind, at = struct.unpack_from(">H", packet, at + 2)[0], at + 4
    # A packet that no wire could carry has no size in its header: Linux joins and splits behind the capture.
    if kind == IPV4 and packet[at + 9] == TCP:
        size = struct.unpack_from(">H", packet, at + 2)[0]
        end, tcp = at + size if size else len(packet), at + (packet[at] & 0xF) * 4
        addresses = packet[at + 12:at + 16], packet[at + 16:at + 20]
    elif kind == IPV6 and packet[at + 6] == TCP:
        size = struct.unpack_from(">H", packet, at + 4)[0]
        end, tcp = at + 40 + size if size else len(packet), at + 40
        addresses = packet[at + 8:at + 24], packet[at + 24:at + 40]
    else:
        return None
    source, target, sequence, _, offset, flags = struct.unpack_from(">HHIIBB", packet, tcp)
    return (addresses[0], source), (addresses[1], target), sequence, flags, packet[tcp + (offset >> 4) * 4:end]
