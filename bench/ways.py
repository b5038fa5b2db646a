# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The ways to run one and the same program: as it is, or with the library under one of its engines."""

import dataclasses
import functools
import os
import subprocess

import machine


@dataclasses.dataclass(frozen=True)
class Way:
    name: str
    prefix: tuple = ()
    options: tuple = ()  # of the programs that bench/ builds
    env: tuple = ()  # (name, value) pairs

    def environment(self):
        return {**os.environ, **dict(self.env)}


def _under(engine):
    return (str(machine.DDPRUN), "--require", "--engine", engine, "--")


PLAIN = Way("plain TCP")
PRELOADED = Way("library loaded, rules off", env=(("LD_PRELOAD", str(machine.LIBRARY)),))
USER = Way("user engine", _under("user"))
SHM = Way("shm engine", _under("shm"))
PREFERRED = Way("as rules have it", (str(machine.DDPRUN), "--prefer", "--"))
PLAIN_CRC = Way("TCP + CRC", options=("--crc",))
USER_NO_CRC = Way("user engine, CRC off", _under("user"), ("--no-mpa-crc",))

# Not sockets: verbs over Linux's siw, and our message mode, which the programs ask for themselves.
SIW = Way("siw")
MESSAGES = Way("user engine, message mode", (str(machine.DDPRUN), "--off", "--"), ("--engine=user",))
MESSAGES_SHM = Way("shm engine, message mode", MESSAGES.prefix, ("--engine=shm",))
MESSAGES_MAPPED = Way("shm engine, memory from ddp_alloc", MESSAGES.prefix, (*MESSAGES_SHM.options, "--mapped"))
MESSAGES_CALLER = Way("user engine, message mode, no thread", MESSAGES.prefix, (*MESSAGES.options, "--caller"))

# What the project offers; every other way is something that it is compared with.
OURS = {w.name for w in (PRELOADED, USER, SHM, PREFERRED, USER_NO_CRC, MESSAGES, MESSAGES_SHM, MESSAGES_MAPPED, MESSAGES_CALLER)}


@functools.cache
def engines():
    """The engines of this build, each insisted upon."""
    return [way for way in (USER, SHM) if _is_accepted(way)]


def _is_accepted(way):
    return machine.has_product() and subprocess.run([*way.prefix, "true"], stdin=subprocess.DEVNULL,
                                                    capture_output=True, check=False).returncode == 0


def messages():
    """Message mode over the engines of this build."""
    return [MESSAGES, MESSAGES_SHM] if machine.has_product() else []


def one_sided():
    """The same for what needs memory that is registered."""
    return [*messages(), MESSAGES_MAPPED] if machine.has_product() else []
