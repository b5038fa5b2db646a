# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Writes small captures of one made-up MPA connection, good or broken at will, for the tests of decode.py."""

import struct

CLIENT = (b"\x7f\x00\x00\x01", 50000)
SERVER = (b"\x7f\x00\x00\x01", 47000)
FIN, SYN, RST, PSH_ACK, ACK = 0x01, 0x02, 0x04, 0x18, 0x10
LINKTYPE_RAW = 101


class Connection:
    """Collects the packets of one TCP connection; `say` adds bytes of one side, cut into segments if asked."""

    def __init__(self):
        self.packets = []
        self.next = {CLIENT: 1000, SERVER: 9000}
        self._packet(CLIENT, SERVER, SYN)
        self._packet(SERVER, CLIENT, SYN | ACK)
        self._packet(CLIENT, SERVER, ACK)

    def say(self, side, data, cut=1 << 15, lose=False):
        for at in range(0, len(data), cut):
            self._packet(side, self._peer(side), PSH_ACK, data[at:at + cut], lose)

    def finish(self):
        for side in (CLIENT, SERVER):
            self._packet(side, self._peer(side), FIN | ACK)
        return self

    def reset(self, side):
        self._packet(side, self._peer(side), RST | ACK)
        return self

    def say_again(self, side=None, octets=b"", back=0):
        """The last packet once more, as TCP does when an acknowledgement is lost; or `octets` where the side stood `back`
        octets ago, as it does when it cuts what was lost otherwise."""
        if side is None:
            self.packets.append(self.packets[-1])
            return
        stood = self.next[side]
        self.next[side] -= back
        self._packet(side, self._peer(side), PSH_ACK, octets)
        self.next[side] = stood

    def write(self, path):
        with open(path, "wb") as f:
            f.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 18, LINKTYPE_RAW))
            for number, packet in enumerate(self.packets):
                f.write(struct.pack("<IIII", 1, number, len(packet), len(packet)) + packet)

    @staticmethod
    def _peer(side):
        return SERVER if side is CLIENT else CLIENT

    def _packet(self, source, target, flags, data=b"", lose=False):
        sequence, acknowledged = self.next[source], 0 if flags == SYN else self.next[target]
        tcp = struct.pack(">HHIIBBHHH", source[1], target[1], sequence, acknowledged, 5 << 4, flags, 65535, 0, 0) + data
        ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(tcp), 0, 0, 64, 6, 0, source[0], target[0])
        if not lose:
            self.packets.append(ip + tcp)
        self.next[source] += len(data) + (1 if flags & (SYN | FIN) else 0)
