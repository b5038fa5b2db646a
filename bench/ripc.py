# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""bench/ripc: the two experiments of the LibRIPC porting thesis, by sockets without and with the library."""

import machine
import pair
import ways
from figure import Figure, Published, size_name

TITLE = "LibRIPC's experiments"
SOURCE = ("the text of section 4.3.2 of the thesis on LibRIPC over iWARP (softiwarp on IP over InfiniBand, two 2.27 GHz Xeon E5520 hosts, "
          "Linux 2.6.32), which gives the first and the last value of each line, and averages where this page has medians")
QUESTION = f"How do sockets do in the two experiments that LibRIPC was shown by? LibRIPC's numbers are from {SOURCE}."
ROUND_TRIP_SIZES = range(50, 1401, 50)
TRANSFER_SIZES = [128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 5 << 20, 10 << 20, 20 << 20, 40 << 20, 80 << 20]
COUNTED = (50, 700, 1400)
LONG_FROM, LONG_SECONDS = 10 << 20, 4  # times --seconds, so that a sample has many transfers

_ROUND_TRIPS = (Published("LibRIPC, RDMA short messages", ((50, 19.89), (1400, 22.61))),
                Published("LibRIPC, UDP short messages", ((50, 27.28), (1400, 32.12))),
                Published("LibRIPC, InfiniBand", ((50, 20.57), (1150, 13.73), (1400, 14.34))),
                Published("TCP sockets in the thesis", ((50, 51.28), (1400, 64.39))))
_TRANSFERS = (Published("LibRIPC, iWARP", ((128 << 10, 185), (80 << 20, 39760))),
              Published("TCP sockets in the thesis", ((128 << 10, 360), (80 << 20, 118010))),
              Published("LibRIPC, InfiniBand", ((128 << 10, 190), (80 << 20, 42820))))
_CPUS = "Two CPUs, TCP_NODELAY, cubic."
FIGURES = [
    Figure("4.1-spin", "Figure 4.1: round trip, both ends spinning", "lines", "bytes a message", is_x_bytes=True, is_x_log=False,
           published=_ROUND_TRIPS, note=_CPUS),
    Figure("4.1-block", "Figure 4.1: round trip, both ends asleep in recv", "lines", "bytes a message", is_x_bytes=True, is_x_log=False,
           published=_ROUND_TRIPS, note=_CPUS),
    Figure("4.2", "Figure 4.2: a transfer, from asking to the last byte", "lines", "bytes", is_x_bytes=True, published=_TRANSFERS,
           note="The client asks with 64 bytes and reads the answer, both ends blocking, on two CPUs; cubic, but for \"plain TCP, default\", "
                "which runs under the system's own congestion control. LibRIPC's transfer was an HTTP get from Jetty."),
]
PLAIN_DEFAULT = ways.Way("plain TCP, default")


def measure(recorder):
    place = pair.TWO_CPUS if recorder.is_pinned else pair.ANYWHERE
    engines = [ways.PLAIN, *ways.engines()]
    for figure, wait, how in (("4.1-spin", "spin", "spinning"), ("4.1-block", "block", "blocking")):
        for size in recorder.thin(ROUND_TRIP_SIZES):
            name = f"round trip {size} B {how}"
            options = [f"--size={size}", "--cc=cubic", f"--wait={wait}", f"--seconds={recorder.seconds}"]
            if recorder.wants(name):
                recorder.compare(figure, name, size, "us, round trip", "lower", engines, lambda way: round_trip(way, options, place), "us",
                                 per="round trip")
                if size in COUNTED and wait == "block" and not recorder.is_quick:
                    pair.count_into(recorder.cases[-1], engines, "latency", options[:-1], place, size)
    is_default_cubic = machine.default_congestion_control() == "cubic"
    for size in recorder.thin(TRANSFER_SIZES):
        name = f"transfer {size_name(size)}"
        if recorder.wants(name):
            recorder.compare("4.2", name, size, "us", "lower", [*engines, *([] if is_default_cubic else [PLAIN_DEFAULT])],
                             lambda way: transfer(way, size, recorder.seconds, place), "p50_us", per="transfer")


def round_trip(way, options, place):
    row = pair.run("stream_peer", way, "latency", options, place)
    return {**row, "us": 2 * row["p50_us"]}


def transfer(way, size, seconds, place):
    options = [f"--size={size}", f"--seconds={seconds * (LONG_SECONDS if size >= LONG_FROM else 1)}"]
    return pair.run("stream_peer", way, "fetch", options + ([] if way == PLAIN_DEFAULT else ["--cc=cubic"]), place)
