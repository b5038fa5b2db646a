# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What perftest over siw and ddp-perf do together, and what must be seen of it on the wire."""

import dataclasses

FIRST_PORT = 18600
# Messages of one exchange each way: versions, two numbers, MTU, the hand shakes before and after the data connection.
AGREEMENT = 6
REPORT_FIELDS = 5
LATENCY_BYTES, BANDWIDTH_BYTES = 2, 65536
RECEIVES = 512  # perftest's default


@dataclasses.dataclass(frozen=True)
class Case:
    test: str  # as ddp-perf calls it
    is_ours_client: bool
    title: str = ""
    size: int = 0
    count: int = 20
    receives: int = RECEIVES
    reads: int = 0
    is_bidirectional: bool = False
    has_crc: bool = True
    is_peer_to_peer: bool = False  # siw's policy
    is_refused: bool = False
    is_sweep: bool = False  # not captured: 80 MB

    @property
    def name(self):
        ends = "ddp-perf to perftest" if self.is_ours_client else "perftest to ddp-perf"
        return f"{self.test} {ends}{', ' if self.title else ''}{self.title}"

    @property
    def bytes(self):
        return self.size or (LATENCY_BYTES if self.test.endswith("lat") else BANDWIDTH_BYTES)

    @property
    def options(self):
        """What both ends are told."""
        options = ["-n", self.count, *(["-s", self.size] if self.size else []), *(["-a"] if self.is_sweep else [])]
        options += ["-r", self.receives] if self.receives != RECEIVES else []
        options += ["-o", self.reads] if self.reads else []
        return options + (["-b"] if self.is_bidirectional else [])

    # On the wire.

    @property
    def has_ready_message(self):
        return self.is_ours_client or self.is_peer_to_peer

    @property
    def control_messages(self):
        """Each way."""
        if self.test == "send-lat" or self.test == "send-bw":
            return AGREEMENT + 3 + 1 + 1
        if self.test.endswith("lat"):
            return AGREEMENT + 4 + (self.test == "read-lat")
        return AGREEMENT + 3 + 1 + REPORT_FIELDS + 1

    @property
    def most_credits(self):
        """How often a receiver of Sends says how many it has taken; one that takes many at a time says so less often."""
        receives = min(self.receives, self.count)
        receives += receives % 2  # both ends round up
        return sum(n % receives % (receives // 3) == 0 for n in range(1, self.count + 1))


def all_roles(test, **how):
    return [Case(test, is_ours_client, **how) for is_ours_client in (True, False)]


EVERY = [
    *(case for test in ("send-lat", "send-bw", "write-bw", "read-lat", "read-bw") for case in all_roles(test)),
    Case("write-lat", True),
    Case("write-lat", False, "siw peer-to-peer", is_peer_to_peer=True),
    Case("write-lat", False, "refused: nobody may write first", is_refused=True),
    *all_roles("send-bw", title="no CRC, credits", size=4096, count=60, receives=9, has_crc=False),
    *all_roles("write-bw", title="both ways", is_bidirectional=True),
    *all_roles("read-bw", title="both ways", is_bidirectional=True),
    *all_roles("read-bw", title="one at a time", size=3000, reads=1),
    *all_roles("send-lat", title="100,001 bytes", size=100_001, count=5),
    Case("send-bw", True, "all sizes", count=5, has_crc=False, is_sweep=True),
]
PORT_OF = {case: FIRST_PORT + number for number, case in enumerate(EVERY)}
CAPTURED = [case for case in EVERY if not case.is_sweep and not case.is_refused]
