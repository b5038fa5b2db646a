# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""bench/message: one connection by the calls of ddpsock.h against plain TCP."""

import functools

import machine
import pair
import paper
import peers
import ways
from figure import Figure, size_name

TITLE = "Messages: figures 6a and 6b for the extended interface"
QUESTION = ("What do posted sends give a program that is written for them, over each engine, against one send a message over plain TCP? Two "
            "processes on two CPUs, cubic, TCP_NODELAY on all. The library's thread takes over while the program makes no call; \"no thread\" is "
            "a program that moves the bytes by its own calls alone.")
LATENCY_SIZES = [1, 8, 16, 64, 256, 1024, 4096, 16384]
WINDOW_SIZES = [1, 16, 256, 4096, 65536, 1 << 20, 4 << 20]
RATE_SIZES = [8, 16, 32, 64, 128, 256]
OUTSTANDING = [1, 4, 16, 64, 256]
SIZE, WINDOW = 64, 64  # what is fixed where the other varies
# From this size on the price of the CRC shows.
CRC_FROM = 65536
WAITS = {"spin": "spinning", "block": "blocking"}
ENDS = {"locally": "completed locally", "acknowledged": "acknowledged by the peer"}

TCP_NAGLE = ways.Way("plain TCP, Nagle")

_WAIT_NOTE = {"spin": "Both ends ask again and again: ddp_poll, and non-blocking recv.", "block": "Both ends sleep: in ddp_wait, and in recv."}
_WINDOW_NOTE = "64 messages are posted at once, the next when the receiver has answered them; over TCP the same by 64 calls of send."
_OTHERS_NOTE = "UCX and libfabric by their own programs, and over TCP under the system's congestion control"
_RATE_NOTES = {"locally": "A message is done when it has left for TCP; the receiver's rate, both ends spinning. With Nagle, TCP puts messages together.",
               "acknowledged": "All outstanding messages are answered by one of the peer, then come the next."}
RATES = [("locally", "spin"), ("acknowledged", "spin"), ("acknowledged", "block")]


def rate_figures(end, wait):
    title = f"Message rate, {ENDS[end]}, {WAITS[wait]}"
    return [Figure(f"rate-{end}-{wait}", f"{title}, {SIZE} B", "lines", "messages outstanding", note=_RATE_NOTES[end]),
            Figure(f"rate-size-{end}-{wait}", f"{title}, {WINDOW} outstanding", "lines", "bytes a message", is_x_bytes=True, note=_RATE_NOTES[end])]


FIGURES = [
    *(Figure(f"6a-{wait}", f"Figure 6a: latency of posted sends, {WAITS[wait]}", "lines", "bytes a message", is_x_bytes=True,
             published=paper.PUBLISHED_LATENCY,
             note=f"Ping-pong, median of half the round trip. {_WAIT_NOTE[wait]}{f' {_OTHERS_NOTE}.' if wait == 'spin' else ''}") for wait in WAITS),
    *(Figure(f"6b-{wait}", f"Figure 6b: bandwidth of posted sends, {WAITS[wait]}", "lines", "bytes a message", is_x_bytes=True,
             published=paper.PUBLISHED_BANDWIDTH,
             note=f"{_WINDOW_NOTE} {_WAIT_NOTE[wait]}{f' {_OTHERS_NOTE}, UCX with a window of its own.' if wait == 'spin' else ''}") for wait in WAITS),
    *(figure for end, wait in RATES for figure in rate_figures(end, wait)),
]


def ours():
    return [*ways.messages(), ways.MESSAGES_CALLER] if machine.has_product() else []


def measure(recorder):
    for wait in WAITS:
        for size in recorder.thin(LATENCY_SIZES):
            others = peers.OTHERS if wait == "spin" else []
            compare(recorder, f"6a-{wait}", f"latency {size_name(size)} {WAITS[wait]}", size, ("us one way", "lower", "p50_us"),
                    [ways.PLAIN, *ours(), *others], "latency", size, WINDOW, wait)
    for wait in WAITS:
        for size in recorder.thin(WINDOW_SIZES):
            with_crc = [ways.PLAIN_CRC] if size >= CRC_FROM else []
            others = [way for way in peers.OTHERS if way in peers.UCX] if wait == "spin" else []
            compare(recorder, f"6b-{wait}", f"window {size_name(size)} {WAITS[wait]}", size, ("Mb/s", "higher", "mbit_s"),
                    [ways.PLAIN, *with_crc, *ours(), *others], "window", size, WINDOW, wait)
    for end, wait in RATES:
        for outstanding in recorder.thin(OUTSTANDING):
            compare_rate(recorder, f"rate-{end}-{wait}", outstanding, end, SIZE, outstanding, wait)
        for size in recorder.thin(RATE_SIZES):
            compare_rate(recorder, f"rate-size-{end}-{wait}", size, end, size, WINDOW, wait)


def compare_rate(recorder, figure, x, end, size, outstanding, wait):
    # The point that both figures have is measured for each.
    fixed = f", {outstanding} outstanding" if "size" not in figure else " by size"
    nagle = [TCP_NAGLE] if end == "locally" else []
    compare(recorder, figure, f"rate {size_name(size)}{fixed}, {ENDS[end]}, {WAITS[wait]}", x, ("messages/s", "higher", "messages_s"),
            [ways.PLAIN, *nagle, *ours()], "rate" if end == "locally" else "window", size, outstanding, wait)


def compare(recorder, figure, name, x, metric, compared, what, size, outstanding, wait):
    if not recorder.wants(name):
        return
    unit, better, key = metric
    place = pair.TWO_CPUS if recorder.is_pinned else pair.ANYWHERE
    options = [f"--size={size}", f"--window={outstanding}", f"--wait={wait}", f"--seconds={recorder.seconds}", "--cc=cubic"]
    recorder.compare(figure, name, x, unit, better, compared,
                     functools.partial(sample, what=what, size=size, options=options, seconds=recorder.seconds, place=place, counts={}), key)


def sample(way, what, size, options, seconds, place, counts):
    if way in peers.OTHERS:
        row = peers.sample(way, "latency" if what == "latency" else "bandwidth", size, seconds, place, counts)
    elif way in ours():
        row = pair.run("message_peer", way, what, options, place)
    elif what == "rate":
        row = pair.run("stream_peer", way, "bandwidth", [*options, *([] if way is TCP_NAGLE else ["--nodelay"])], place)
    else:
        row = pair.run("stream_peer", way, what, options, place)
    if "gbit_s" in row:
        row["mbit_s"] = row["gbit_s"] * 1e3
        row["messages_s"] = row["gbit_s"] * 1e9 / 8 / size
    return row
