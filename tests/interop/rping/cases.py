# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What is tried between rping over siw and ddp-rping, and what must come of it. Read in the guest and on the host."""

import dataclasses

# rping's own limits for -S, by trying.
RPING_MIN, RPING_MAX = 26, 65535
# Where rping's one server of a group listens; it serves all our clients. Our servers serve one client each, on a port of
# its own: rping's clients may choose their own port twice, which TCP and Wireshark take for the same connection.
RPING, RPING6, FIRST_OF_OURS = 7174, 7175, 7300


@dataclasses.dataclass(frozen=True)
class Case:
    """One client of one server."""
    is_ours_client: bool  # or rping's, of our server
    size: int
    count: int = 3
    options: tuple = ()  # of ours
    siw: dict = dataclasses.field(default_factory=dict)  # siw's policy meanwhile
    has_crc: bool = True  # expected
    revision: int = 2  # expected in the Reply
    rtr: str = ""  # the expected RTR message: Write, Read
    is_ipv6: bool = False

    @property
    def name(self):
        parts = [f"{self.size} B", f"{self.count} times", *self.options, *(f"siw {k}={v}" for k, v in self.siw.items())]
        if self.is_ipv6:
            parts.append("IPv6")
        return ", ".join(["ddp-rping to rping" if self.is_ours_client else "rping to ddp-rping", *parts])


@dataclasses.dataclass(frozen=True)
class Group:
    """Cases that share a cable and a capture."""
    name: str
    cases: tuple
    mtu: int = 1500
    netem: tuple = ()

    def port(self, case):
        """The server's."""
        if case.is_ours_client:
            return RPING6 if case.is_ipv6 else RPING
        return FIRST_OF_OURS + self.cases.index(case)


def client(size, **how):
    return Case(True, size, **how)


def server(size, **how):
    return Case(False, size, **how)


def both(*sizes, **how):
    """Each size from our client, and from rping as far as it takes it."""
    yield from (client(size, **how) for size in sizes)
    yield from (server(size, **how) for size in sizes if RPING_MIN <= size <= RPING_MAX)


# Enough to go without: siw wants no CRC by itself.
NO_CRC = {"options": ("--no-crc",), "has_crc": False}
CRC_REQUIRED = {"mpa_crc_required": "Y"}
# rtr_type is in the byte order of the wire: 0x0040 is the Read.
PEER_TO_PEER, PEER_TO_PEER_READ = {"peer_to_peer": "Y"}, {"peer_to_peer": "Y", "rtr_type": "64"}
REVISION_1 = {"mpa_version": "1"}

GROUPS = (
    Group("default", (
        # 1428 bytes of a Write or Read Response fill a segment.
        *both(1, 2, 3, 64, 1428, 1429, 65534, 65535),
        *both(3, 4000, 65535, **NO_CRC),
        *both(64, count=100),
        *both(4000, is_ipv6=True),
        client(4000, options=("--rtr", "write"), rtr="Write"),
        client(4000, options=("--rtr", "read"), rtr="Read"),
        server(4000, siw=PEER_TO_PEER, rtr="Write"),
        server(4000, siw=PEER_TO_PEER_READ, rtr="Read"),
        client(64, options=("--private-data", "x" * 251)),
        server(64, options=("--private-data", "x" * 251)),
        *both(3, 4000, siw=CRC_REQUIRED),
        server(4000, siw=CRC_REQUIRED, options=("--no-crc",)),
        # siw's own wish counts as initiator only: as responder it answers as it is asked.
        client(4000, siw=CRC_REQUIRED, **NO_CRC),
        # The other way round siw's rping can issue no Read, see failures.py.
        server(4000, siw=REVISION_1, revision=1),
        server(4000, siw=REVISION_1, revision=1, **NO_CRC),
    )),
    Group("loss", (*both(64, 65535, count=10), *both(65535, **NO_CRC)), netem=("delay", "2ms", "1ms", "loss", "2%")),
    # Ours fills a segment with 8928 bytes, siw with 8924.
    Group("jumbo", (*both(1, 8924, 8925, 8928, 8929, 65535), *both(65535, **NO_CRC)), mtu=9000),
)
