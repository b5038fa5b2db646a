# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""bench/onesided: Reads, Writes and atomics by the calls of ddpsock.h, against a question and its answer over plain TCP."""

import machine
import pair
import peers
import ways
from figure import Figure, size_name

TITLE = "One-sided operations"
QUESTION = ("What does it cost to read, write or count in another process's registered memory? The other side of it is a question and an answer "
            "over plain TCP, which is what a program does without one-sided operations, and UCX. Two processes on two CPUs; cubic, but for UCX.")
READ_SIZES = [8, 64, 512, 4096, 65536, 1 << 20]
WRITE_SIZES = [64, 512, 4096, 65536, 1 << 20]
WINDOW = 64
WAITS = {"spin": "spinning", "block": "blocking"}

COPY = ways.Way("memcpy", ways.MESSAGES.prefix, ways.MESSAGES.options)
# How long the shm engine takes to bring a message from one end to the other.
ONE_WAY = ways.Way("a posted send, one way, shm engine", ways.MESSAGES_SHM.prefix, ways.MESSAGES_SHM.options)
ASKED = ways.Way("plain TCP, asked and answered")
UCX_TESTS = {"read": "ucp_get", "add": "ucp_fadd", "write": "ucp_put_bw"}
_NOTE = {"spin": "Both ends ask again and again.", "block": "Both ends sleep; the library's thread serves the peer."}

FIGURES = [
    *(Figure(f"read-{wait}", f"A Read, {WAITS[wait]}", "lines", "bytes", is_x_bytes=True, baseline=ASKED.name,
             note=f"From the post to the completion. {_NOTE[wait]} TCP: the whole round trip of a message of that size each way.") for wait in WAITS),
    *(Figure(f"add-{wait}", f"A fetch-add, {WAITS[wait]}", "lines", "bytes", is_x_bytes=True, baseline=ASKED.name, note=_NOTE[wait]) for wait in WAITS),
    Figure("write", "Writes, spinning", "lines", "bytes a Write", is_x_bytes=True, baseline=COPY.name,
           note=f"{WINDOW} Writes outstanding, up to a Read after the last. memcpy: one thread between two pieces of its own memory."),
]


def measure(recorder):
    place = pair.TWO_CPUS if recorder.is_pinned else pair.ANYWHERE
    for what, sizes in (("read", READ_SIZES), ("add", [8])):
        for wait in WAITS:
            for size in recorder.thin(sizes):
                others = [ONE_WAY, *peers.UCX] if wait == "spin" and machine.has_product() else []
                compare(recorder, f"{what}-{wait}", f"{what} {size_name(size)} {WAITS[wait]}", size, ("us", "lower", "p50_us"),
                        [ASKED, *ways.one_sided(), *others], what, wait, place)
    for size in recorder.thin(WRITE_SIZES):
        compare(recorder, "write", f"write {size_name(size)}", size, ("Gb/s", "higher", "gbit_s"),
                [COPY, *ways.one_sided(), *peers.UCX], "write", "spin", place)


def compare(recorder, figure, name, size, metric, compared, what, wait, place):
    if not recorder.wants(name):
        return
    unit, better, key = metric
    counts = {}
    compared = sorted(compared, key=lambda way: (way not in (ASKED, COPY), way.name))
    recorder.compare(figure, name, size, unit, better, compared, lambda way: sample(way, what, size, wait, recorder.seconds, place, counts), key)


def sample(way, what, size, wait, seconds, place, counts):
    options = [f"--size={size}", f"--window={WINDOW}", f"--wait={wait}", f"--seconds={seconds}", "--cc=cubic"]
    if way in peers.UCX:
        return peers.sample_ucx(way, UCX_TESTS[what], size, seconds, place, counts)
    if way == ASKED:
        row = pair.run("stream_peer", way, "latency", options, place)
        row["p50_us"] *= 2
        return row
    if way == ONE_WAY:
        return pair.run("message_peer", way, "latency", options, place)
    return pair.run("onesided_peer", way, "copy" if way == COPY else what, options, place)
