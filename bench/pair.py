# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs one pair of stream_peer processes, server and client, and returns what the client measured."""

import dataclasses
import json
import os
import re
import subprocess

import machine

RUN_SECONDS = 60


class PairError(Exception):
    """A pair did not finish; the message has what it printed."""


@dataclasses.dataclass(frozen=True)
class Way:
    """One way to run the same program."""
    name: str
    prefix: tuple = ()
    options: tuple = ()
    env: tuple = ()  # (name, value) pairs


USER_ENGINE = (str(machine.DDPRUN), "--require", "--engine", "user", "--")
PLAIN = Way("plain TCP")
PRELOADED = Way("library loaded, rules off", env=(("LD_PRELOAD", str(machine.LIBRARY)),))
DDP = Way("user engine", USER_ENGINE)
PLAIN_CRC = Way("TCP + CRC", options=("--crc",))
DDP_NO_CRC = Way("user engine, CRC off", USER_ENGINE, ("--no-mpa-crc",))


def _environment(way):
    return {**os.environ, **dict(way.env)}


def run(way, what, options, is_pinned, tracers=((), ())):
    """`options` go to the client; those of `way` and the congestion control to both. `tracers` are put before each."""
    shared = [*way.options, *(o for o in options if o.startswith("--cc="))]
    own = [o for o in options if not o.startswith("--cc=")]
    pin = lambda cpu: [f"--cpu={cpu}"] if is_pinned else []
    serve = [*tracers[0], *way.prefix, str(machine.PEER), "serve", *shared, *pin(0)]
    server = subprocess.Popen(serve, env=_environment(way), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
    try:
        port = server.stdout.readline().strip()
        if not port:
            raise PairError(f"{way.name}: {what}: the server did not start: {server.communicate()[1]}")
        connect = [*tracers[1], *way.prefix, str(machine.PEER), what, f"--port={port}", *shared, *own, *pin(1)]
        client = subprocess.run(connect, env=_environment(way), stdin=subprocess.DEVNULL, capture_output=True,
                                text=True, timeout=RUN_SECONDS)
        if client.returncode != 0:
            raise PairError(f"{way.name}: {what} {own}: {client.stdout} {client.stderr}")
        server.wait(RUN_SECONDS)
        return json.loads(client.stdout)
    except subprocess.TimeoutExpired as expired:
        raise PairError(f"{way.name}: {what} {own}: {expired}") from None
    finally:
        if server.poll() is None:
            server.kill()
        server.communicate()


def system_calls(way, what, options, is_pinned, folder):
    """How often each side made each system call in one run, as two dicts."""
    traces = [folder / f"strace.{side}" for side in ("server", "client")]
    run(way, what, options, is_pinned, [("strace", "-f", "-c", "-U", "calls,name", "-o", str(t)) for t in traces])
    return [dict(_read_counts(t)) for t in traces]


def _read_counts(trace):
    for line in trace.read_text().splitlines():
        if (match := re.fullmatch(r"\s*(\d+)\s+(\w+)", line)) and match[2] != "total":
            yield match[2], int(match[1])


def system_calls_per_message(way, what, options, is_pinned, folder, few=500, many=1500):
    """Counts two runs of different length, so that starting and ending cancel out; two dicts of averages."""
    runs = [system_calls(way, what, [*options, f"--count={n}"], is_pinned, folder) for n in (few, many)]
    sides = []
    for short, long in zip(*runs):
        rates = {name: (long[name] - short.get(name, 0)) / (many - few) for name in long}
        sides.append({name: round(rate, 3) for name, rate in rates.items() if abs(rate) >= 0.005})
    return sides
