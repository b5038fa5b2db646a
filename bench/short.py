# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""bench/short: connections that carry one request and one answer."""

import pair
import ways
from figure import Figure

TITLE = "Short connections"
QUESTION = "What does a connection cost that carries one request and one answer?"
SIZE = 64  # what programs of bench/ have without --size
_NOTE = f"connect, {SIZE} B each way, close; one connection after the other, both ends blocking, cubic."
FIGURES = [
    Figure("rate", "Short connections a second", "bars", note=_NOTE),
    Figure("cpu", "CPU time of a short connection, both ends", "bars", note=_NOTE),
]
FEW, MANY = 200, 600
PLACES = {"two CPUs": pair.TWO_CPUS, "one CPU": pair.ONE_CPU}


def measure(recorder):
    for name, place in (PLACES if recorder.is_pinned else {"any CPU": pair.ANYWHERE}).items():
        label = f"short connections, {name}"
        if not recorder.wants(label):
            continue
        options = ["--cc=cubic"]
        chosen = [ways.PLAIN, ways.PREFERRED, *ways.engines()]
        runs = recorder.compare("rate", label, name, "connections/s", "higher", chosen,
                                lambda way: pair.run("short_peer", way, "client", [*options, f"--seconds={recorder.seconds}"], place),
                                "connections_s", per="connection")
        recorder.record_key("cpu", f"CPU of {label}", name, "us", "lower", runs, "cpu_us")
        if not recorder.is_quick:
            for way in runs:
                recorder.cases[-2].calls[way.name] = count_calls(way, options, place)


def count_calls(way, options, place):
    """System calls of both sides a connection: two runs of different length, so that starting and ending cancel out."""
    few, many = (pair.total(pair.system_calls("short_peer", way, "client", [*options, f"--count={n}"], place)[0]) for n in (FEW, MANY))
    return round((many - few) / (MANY - FEW), 2)
