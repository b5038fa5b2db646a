# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs a pair of processes of one of our own programs, server and client, and returns what the client measured."""

import contextlib
import dataclasses
import json
import pathlib
import re
import subprocess
import tempfile

import machine
import recorder

RUN_SECONDS = 60
# Options that both ends take; the client alone gets the others.
SHARED = ("--cc=", "--address=", "--engine=")


@dataclasses.dataclass(frozen=True)
class Place:
    """Where the two ends run: a prefix for each (another namespace, a tracer), and what each adds to its environment."""
    prefixes: tuple = ((), ())
    env: tuple = ({}, {})
    cpus: tuple = (0, 1)  # or None for the kernel's choice


ANYWHERE = Place(cpus=(None, None))
TWO_CPUS = Place()
ONE_CPU = Place(cpus=(0, 0))


def run(program, way, what, options, place=TWO_CPUS):
    """The client's JSON, with `cpu_us` of both ends where it says so."""
    shared = [*way.options, *(o for o in options if o.startswith(SHARED))]
    own = [o for o in options if not o.startswith(SHARED)]
    serve, connect = ([*place.prefixes[i], *way.prefix, machine.program(program), *words, *shared,
                       *([] if place.cpus[i] is None else [f"--cpu={place.cpus[i]}"])]
                      for i, words in enumerate((["serve"], [what, *own])))
    environment = [{**way.environment(), **extra} for extra in place.env]
    server = subprocess.Popen(serve, env=environment[0], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
    try:
        port = server.stdout.readline().strip()
        if not port:
            raise recorder.Failed(f"the server did not start: {server.communicate()[1]}")
        client = subprocess.run([*connect, f"--port={port}"], env=environment[1], stdin=subprocess.DEVNULL,
                                capture_output=True, text=True, timeout=RUN_SECONDS)
        if client.returncode != 0:
            raise recorder.Failed(f"{what} {own}: {client.stdout} {client.stderr}")
        server.wait(RUN_SECONDS)
    except subprocess.TimeoutExpired as expired:
        raise recorder.Failed(f"{what} {own}: {expired}") from None
    finally:
        if server.poll() is None:
            server.kill()
        server.communicate()
    try:
        row = json.loads(client.stdout)
    except ValueError:
        raise recorder.Failed(f"{what} {own}: printed {client.stdout}") from None
    if "client_cpu_us" in row:
        row["cpu_us"] = row["client_cpu_us"] + row["server_cpu_us"]
    if "gbit_s" in row:
        row["mbit_s"] = row["gbit_s"] * 1000
    return row


def system_calls(program, way, what, options, place):
    """How often each side made each system call in one run, as two dicts, and what the client measured."""
    with tempfile.TemporaryDirectory() as folder:
        traces = [pathlib.Path(folder) / side for side in ("server", "client")]
        tracers = [("strace", "-f", "-c", "-U", "calls,name", "-o", str(t)) for t in traces]
        traced = dataclasses.replace(place, prefixes=tuple((*prefix, *tracer) for prefix, tracer in zip(place.prefixes, tracers)))
        row = run(program, way, what, options, traced)
        return [dict(read_counts(t)) for t in traces], row


def read_counts(trace):
    """(system call, how often) from the summary that strace wrote."""
    with contextlib.suppress(FileNotFoundError):
        for line in trace.read_text().splitlines():
            if (match := re.fullmatch(r"\s*(\d+)\s+(\w+)", line)) and match[2] != "total":
                yield match[2], int(match[1])


def system_calls_per_message(way, what, options, place, few=512, many=1536):
    """Counts two runs of stream_peer of different length, so that starting and ending cancel out; two dicts of averages."""
    runs = [system_calls("stream_peer", way, what, [*options, f"--count={n}"], place)[0] for n in (few, many)]
    sides = []
    for short, long in zip(*runs):
        rates = {name: (long[name] - short.get(name, 0)) / (many - few) for name in long}
        sides.append({name: round(rate, 3) for name, rate in rates.items() if abs(rate) >= 0.005})
    return sides


LONG_MESSAGE = 256 << 10


def count_into(case, ways, what, options, place, size):
    """Fills in a recorded case how many system calls both sides make for a message, by runs that are not timed."""
    counts = (64, 192) if size >= LONG_MESSAGE else (512, 1536)
    for way in (w for w in ways if w.name in case.samples):
        case.calls[way.name] = round(total(system_calls_per_message(way, what, options, place, *counts)), 3)


def total(sides):
    return sum(sum(side.values()) for side in sides)
