# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""MPA, DDP and RDMAP frames as bytes, right or wrong at will, for tests that play a peer or make up a capture."""

import struct

WRITE, READ_REQUEST, READ_RESPONSE, SEND, TERMINATE = 0x0, 0x1, 0x2, 0x3, 0x7
MPA_KEYS = REQUEST_KEY, REPLY_KEY = b"MPA ID Req Frame", b"MPA ID Rep Frame"
FLAG_CRC, FLAG_REJECT, FLAG_ENHANCED = 0x40, 0x20, 0x10


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def mpa_start(key, flags=FLAG_CRC | FLAG_ENHANCED, private_data=bytes.fromhex("80010001"), revision=2):
    """A start-up frame; of revision 2 the private data begin with IRD and ORD (RFC 6581 section 6)."""
    return key + struct.pack(">BBH", flags, revision, len(private_data)) + private_data


REQUEST = mpa_start(REQUEST_KEY)
REPLY = mpa_start(REPLY_KEY)


def framed(ulpdu, good_crc=True):
    """One FPDU (RFC 5044 section 4.1)."""
    octets = struct.pack(">H", len(ulpdu)) + ulpdu
    octets += b"\0" * (-len(octets) % 4)
    return octets + struct.pack("<I", crc32c(octets) ^ (0 if good_crc else 1))


def untagged_fpdu(opcode, payload, msn, qn=0, good_crc=True):
    """One untagged message in one FPDU (RFC 5041 section 4.3, RFC 5040 section 4)."""
    return framed(struct.pack(">BBIIII", 0x41, 0x40 | opcode, 0, qn, msn, 0) + payload, good_crc)


def tagged_fpdu(opcode, payload, stag=7, to=0, is_last=True):
    """One segment of a tagged message (RFC 5041 section 4.2)."""
    return framed(struct.pack(">BBIQ", 0xC1 if is_last else 0x81, 0x40 | opcode, stag, to) + payload)


def read_request(msn, size, source_stag, source_to, sink_stag=7, sink_to=0):
    """RFC 5040 section 4.4."""
    body = struct.pack(">IQIIQ", sink_stag, sink_to, size, source_stag, source_to)
    return untagged_fpdu(READ_REQUEST, body, msn, qn=1)


def send_fpdu(payload, msn, good_crc=True):
    return untagged_fpdu(SEND, payload, msn, good_crc=good_crc)


