# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""bench/connections: ten to ten thousand connections between two processes."""

import resource

import pair
import ways
from figure import Figure
from recorder import Case

TITLE = "Many connections"
QUESTION = "What does a resting connection weigh, and what does an operation cost among so many?"
COUNTS = [10, 100, 1000, 10000]
COUNTED = (10, 1000)
SPARE_FILES = 100
_NOTE = "An event loop serves ping-pong of 64 B on one connection after the other, in random order; two CPUs, cubic."
FIGURES = [
    Figure("operation", "A round trip among n connections", "lines", "connections", note=_NOTE),
    Figure("memory", "Memory of a connection, both sides", "lines", "connections",
           note="Proportional set size of both processes after one message each way; the kernel's own socket memory is not in it."),
    Figure("connect", "Connecting, with one round trip", "lines", "connections", note="One connection after the other."),
    Figure("growth", "Growth of an operation's cost", "bars", note="Cost of a round trip among 10,000 connections in times its cost among 10."),
]


def measure(recorder):
    place = pair.TWO_CPUS if recorder.is_pinned else pair.ANYWHERE
    costs = {}
    for count in COUNTS[:3] if recorder.is_quick else COUNTS:
        name = f"among {count}"
        if not recorder.wants(name):
            continue
        if not may_open(count + SPARE_FILES):
            recorder.problem(f"connections: a process may not open {count} files here")
            continue
        options = [f"--count={count}", "--size=64", "--cc=cubic", f"--seconds={recorder.seconds}"]
        runs = recorder.compare("operation", name, count, "us, round trip", "lower", [ways.PLAIN, *ways.engines()],
                                lambda way: sample(way, options, place), "operation_us", per="round trip")
        case = recorder.cases[-1]
        recorder.record_key("memory", f"memory {count}", count, "bytes", "lower", drop_cpu(runs), "bytes")
        recorder.record_key("connect", f"connect {count}", count, "us", "lower", drop_cpu(runs), "connect_us")
        if count in COUNTED and not recorder.is_quick:
            for way in runs:
                case.calls[way.name] = count_calls(way, options[:-1], place)
        costs[count] = {way.name: [row["operation_us"] for row in rows] for way, rows in runs.items()}
    record_growth(recorder, costs)


def sample(way, options, place):
    row = pair.run("connections_peer", way, "client", options, place)
    return {**row, "bytes": row["client_bytes"] + row["server_bytes"]}


def count_calls(way, options, place):
    """System calls of both sides a round trip: two runs of different length, so that connecting cancels out."""
    (short, few), (long, many) = (pair.system_calls("connections_peer", way, "client", [*options, f"--seconds={s}"], place) for s in (0.2, 0.6))
    return round((pair.total(long) - pair.total(short)) / (many["operations"] - few["operations"]), 3)


def drop_cpu(runs):
    """CPU time is an operation's; it says nothing of memory."""
    return {way: [{k: v for k, v in row.items() if k != "cpu_us"} for row in rows] for way, rows in runs.items()}


def record_growth(recorder, costs):
    first, last = COUNTS[0], COUNTS[-1]
    if first in costs and last in costs:
        growth = {way: [many / few for few, many in zip(costs[first][way], values)] for way, values in costs[last].items() if way in costs[first]}
        recorder.record(Case("growth", f"growth of the cost, {first} to {last}", f"{first} to {last} connections", "times", "lower", growth))


def may_open(files):
    """Raises the limit that children inherit, where this user may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= files:
        return True
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, max(files, hard)))
    except (ValueError, PermissionError):
        return False
    return True
