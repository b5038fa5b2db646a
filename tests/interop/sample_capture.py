# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Writes small captures of one made-up MPA connection, good or broken at will, for the tests of decode.py."""

import struct

CLIENT = (b"\x7f\x00\x00\x01", 50000)
SERVER = (b"\x7f\x00\x00\x01", 47000)
FIN, SYN, RST, PSH_ACK, ACK = 0x01, 0x02, 0x04, 0x18, 0x10
LINKTYPE_RAW = 101
WRITE, READ_REQUEST, READ_RESPONSE, SEND, TERMINATE = 0x0, 0x1, 0x2, 0x3, 0x7


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def mpa_start(key, flags=0x50, private_data=bytes.fromhex("80010001")):
    return key + struct.pack(">BBH", flags, 2, len(private_data)) + private_data


REQUEST = mpa_start(b"MPA ID Req Frame")
REPLY = mpa_start(b"MPA ID Rep Frame")


def framed(ulpdu, good_crc=True):
    """One FPDU (RFC 5044 section 4.1)."""
    octets = struct.pack(">H", len(ulpdu)) + ulpdu
    octets += b"\0" * (-len(octets) % 4)
    return octets + struct.pack("<I", crc32c(octets) ^ (0 if good_crc else 1))


def untagged_fpdu(opcode, payload, msn, qn=0, good_crc=True):
    """One untagged message in one FPDU (RFC 5041 section 4.3, RFC 5040 section 4)."""
    return framed(struct.pack(">BBIIII", 0x41, 0x40 | opcode, 0, qn, msn, 0) + payload, good_crc)


def tagged_fpdu(opcode, payload, to=0, is_last=True):
    """One segment of a tagged message (RFC 5041 section 4.2)."""
    return framed(struct.pack(">BBIQ", 0xC1 if is_last else 0x81, 0x40 | opcode, 7, to) + payload)


def send_fpdu(payload, msn, good_crc=True):
    return untagged_fpdu(SEND, payload, msn, good_crc=good_crc)


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

    def say_again(self):
        """The last packet once more, as TCP does when an acknowledgement is lost."""
        self.packets.append(self.packets[-1])

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
