# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The frames between the runner and the guest's init, over one virtio-serial port.

A frame is a kind, the number of the command it is about (0: the guest itself) and its payload. The same file serves both
ends; either end closes when the other says something it should not.
"""

import json
import struct

PORT = "lab"
HEADER = struct.Struct(">BII")
MAX_PAYLOAD = 1 << 20

# From the guest, in this order: HELLO when it can read, READY when it is set up; then for each command any number of
# STDOUT and STDERR and one EXIT {"status"}. FAILED carries a text instead of READY.
HELLO, READY, FAILED, STDOUT, STDERR, EXIT = range(1, 7)
# From the runner: SETUP {...} once, START {"argv", "env", "cwd", "terminal"} and KILL {"signal"} for a command.
SETUP, START, KILL = range(16, 19)


class WireError(Exception):
    """The other end does not keep to the frames above."""


def frame(kind, number, payload=b""):
    if isinstance(payload, dict):
        payload = json.dumps(payload).encode()
    if len(payload) > MAX_PAYLOAD:
        raise WireError(f"a frame of {len(payload)} bytes")
    return HEADER.pack(kind, number, len(payload)) + payload


class Frames:
    """Cuts a stream of bytes into frames, whatever pieces it comes in."""

    def __init__(self):
        self._rest = bytearray()

    def feed(self, data):
        """The frames that are complete now, as (kind, number, payload)."""
        self._rest += data
        found = []
        while len(self._rest) >= HEADER.size:
            kind, number, size = HEADER.unpack_from(self._rest)
            if size > MAX_PAYLOAD:
                raise WireError(f"a frame of {size} bytes")
            if len(self._rest) < HEADER.size + size:
                break
            found.append((kind, number, bytes(self._rest[HEADER.size:HEADER.size + size])))
            del self._rest[:HEADER.size + size]
        return found
