# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""bench/stream: one connection of an unmodified program over each engine against plain TCP."""

import dataclasses

import machine
import pair
import ways
from figure import Figure, size_name

TITLE = "One connection"
QUESTION = ("What does each engine cost or gain one unmodified program on one host? The two ends are pinned to two CPUs; "
            "cubic unless a figure says otherwise.")
LATENCY_SIZES = [1, 8, 64, 256, 1024, 4096, 16384, 65536]
BANDWIDTH_SIZES = [64, 512, 4096, 65536, 1 << 20, 4 << 20]
# From this size on the price of the CRC shows, and is measured by itself.
CRC_FROM = 65536
TRACED = [("latency", 1), ("latency", 64), ("latency", 4096), ("latency", 65536), ("bandwidth", 64), ("bandwidth", 4096),
          ("bandwidth", 65536), ("bandwidth", 1 << 20)]
# What is also measured under this machine's own congestion control.
DEFAULT_CC_CASES = {("latency", 64), ("bandwidth", 65536), ("bandwidth", 1 << 20)}

_CRC_NOTE = "\"TCP + CRC\" is plain TCP whose two ends compute CRC32c over every byte, the least that a checked transport costs."
FIGURES = [
    Figure("latency-block", "Latency, both ends asleep in recv", "lines", "bytes a message", is_x_bytes=True,
           note="Ping-pong, TCP_NODELAY; median of half the round trip."),
    Figure("latency-spin", "Latency, both ends spinning", "lines", "bytes a message", is_x_bytes=True,
           note="The same with non-blocking sockets that are asked again and again."),
    Figure("bandwidth-block", "Bandwidth, both ends blocking", "lines", "bytes a send", is_x_bytes=True, note=_CRC_NOTE),
    Figure("bandwidth-spin", "Bandwidth, both ends spinning", "lines", "bytes a send", is_x_bytes=True, note=_CRC_NOTE),
    Figure("sleeping", "A peer that sleeps in epoll", "bars",
           note="Ping-pong of 8 B and 64 B; each end waits in epoll_wait as an event loop does."),
    Figure("default-cc", "Under this machine's default congestion control", "bars",
           note="Drawn only where the default is another one than cubic."),
    Figure("p99", "The slowest of a hundred messages", "bars", note="99th percentile of the 64 B ping-pong."),
]


@dataclasses.dataclass(frozen=True)
class Pair:
    what: str
    size: int
    wait: str  # block, spin or epoll
    cc: str = "cubic"

    @property
    def name(self):
        how = {"block": "blocking", "spin": "spinning", "epoll": "epoll"}[self.wait]
        return f"{self.what} {size_name(self.size)} {how} {self.cc}"

    @property
    def options(self):
        return [f"--size={self.size}", f"--cc={self.cc}", f"--wait={self.wait}"]

    @property
    def ways(self):
        with_crc = [ways.PLAIN_CRC, ways.USER_NO_CRC] if self.size >= CRC_FROM and ways.engines() else []
        return [ways.PLAIN, *ways.engines(), *with_crc]

    @property
    def metric(self):
        """Unit, key and which is better."""
        return ("us one way", "p50_us", "lower") if self.what == "latency" else ("Gb/s", "gbit_s", "higher")


def measure(recorder):
    place = pair.TWO_CPUS if recorder.is_pinned else pair.ANYWHERE
    for what, sizes in (("latency", LATENCY_SIZES), ("bandwidth", BANDWIDTH_SIZES)):
        for wait in ("block", "spin"):
            for size in recorder.thin(sizes):
                compare(recorder, Pair(what, size, wait), f"{what}-{wait}", size, place)
    measure_sleeping(recorder)
    for cc in machine.congestion_controls():
        for what, size in sorted(DEFAULT_CC_CASES) if cc != "cubic" else []:
            compare(recorder, Pair(what, size, "block", cc), "default-cc", f"{what} {size_name(size)}, {cc}", place)
    if not recorder.is_quick:
        count_system_calls(recorder, place)


def compare(recorder, wanted, figure, x, place, name=None):
    name = name or wanted.name
    if not recorder.wants(name):
        return
    unit, key, better = wanted.metric
    options = [*wanted.options, f"--seconds={recorder.seconds}"]
    runs = recorder.compare(figure, name, x, unit, better, wanted.ways,
                            lambda way: pair.run("stream_peer", way, wanted.what, options, place), key)
    if figure in ("latency-block", "latency-spin") and wanted.size == 64:
        recorder.record_key("p99", f"{name} p99", f"64 B, {wanted.wait}", unit, "lower", runs, "p99_us")


def measure_sleeping(recorder):
    for label, place in (("one CPU", pair.ONE_CPU), ("two CPUs", pair.TWO_CPUS)):
        for size in recorder.thin([8, 64], keep=2):
            wanted = Pair("latency", size, "epoll")
            compare(recorder, wanted, "sleeping", f"{size} B, {label}", place, f"{wanted.name}, {label}")


def count_system_calls(recorder, place):
    cases = {case.name: case for case in recorder.cases}
    for what, size in TRACED:
        wanted = Pair(what, size, "block")
        if wanted.name in cases:
            pair.count_into(cases[wanted.name], wanted.ways, what, wanted.options, place, size)
