# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The columns of the board: which end of a connection has the library, how it is told to behave, and where the ends are."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Placement:
    """The two ends. Options of ddprun, or None for an end without the library."""
    server: tuple[str, ...] | None = None
    client: tuple[str, ...] | None = None
    client_is_elsewhere: bool = False  # in another network namespace
    client_is_another_user: bool = False

    def has_one_kind_of_end(self):
        return self.server == self.client and not self.client_is_elsewhere and not self.client_is_another_user


@dataclasses.dataclass(frozen=True)
class Column:
    name: str
    what: str
    placements: tuple[Placement, ...]  # a test is run in each

    def fits_one_process(self):
        """Whether it means anything where both ends are one process."""
        return all(placement.has_one_kind_of_end() for placement in self.placements)


OFF, PREFER = ("--off",), ("--prefer",)
USER, SHM = ("--require", "--engine", "user"), ("--require", "--engine", "shm")

# What all others are compared with. Run twice: what differs between the two is no test of the library.
NATIVE = Column("native", "no library; run twice", (Placement(), Placement()))

COLUMNS = {column.name: column for column in (
    NATIVE,
    Column("off", "the library, rules off", (Placement(OFF, OFF),)),
    Column("prefer", "`prefer`, both ends", (Placement(PREFER, PREFER),)),
    Column("plain-peer", "`prefer`, the peer without the library, on this host: the server's, then the client's",
           (Placement(PREFER, None), Placement(None, PREFER))),
    Column("elsewhere", "`prefer`, the client without the library in another network namespace: undecided until it speaks",
           (Placement(PREFER, None, client_is_elsewhere=True),)),
    Column("user", "`require` on the user engine", (Placement(USER, USER),)),
    Column("shm", "`require` in shared memory", (Placement(SHM, SHM),)),
    Column("users", "`prefer`, the ends are different users", (Placement(PREFER, PREFER, client_is_another_user=True),)),
)}
