# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""bench/paper: figures 5 and 6 of the paper that described extended sockets over DDP, measured here."""

import pair
import ways
from figure import Figure, Published, size_name

TITLE = "The paper's figures 5 and 6"
SOURCE = ("P. Balaji, H.-W. Jin, K. Vaidyanathan and D. K. Panda, OSU-CISRC-6/05-TR37, 2005, section 4.1: two 700 MHz Pentium "
          "III hosts, Gigabit Ethernet, Linux 2.4.18.")
QUESTION = ("What does an unmodified program pay for having the library loaded (figure 5), and what do DDP sockets give "
            "it (figure 6)? Stream interface. The paper's own numbers are from " + SOURCE)
LATENCY_SIZES = [1 << n for n in range(0, 15)]
BANDWIDTH_SIZES = [1 << n for n in range(0, 23, 2)]
COUNTED = {("latency", 1 << n) for n in (0, 6, 10, 14)} | {("window", 1 << n) for n in (0, 6, 10, 14, 18, 22)}

PUBLISHED_LATENCY = (Published("paper: user-level DDP adds 100 us to TCP", ((1, 100),), True),
                     Published("paper: kernel-level DDP adds 5 us to TCP", ((1, 5),), True))
PUBLISHED_BANDWIDTH = (Published("paper: peak of user- and kernel-level DDP, 550 Mb/s", ((1, 550),), True),)
_LATENCY_NOTE = "Ping-pong, half the round trip, both ends asleep in recv on two CPUs, TCP_NODELAY, cubic."
_WINDOW_NOTE = ("The sender waits for a message of the receiver after every window, as in the paper; 64 messages a window (the "
                "paper does not give its window), TCP_NODELAY on all, cubic.")
FIGURES = [
    Figure("5a", "Figure 5a: latency, rules off", "lines", "bytes a message", is_x_bytes=True,
           note=f"{_LATENCY_NOTE} The paper's text gives no number for this figure, only \"very minimal overhead\"."),
    Figure("5b", "Figure 5b: bandwidth, rules off", "lines", "bytes a message", is_x_bytes=True,
           note=f"{_WINDOW_NOTE} The paper's text gives no number for this figure, only \"very minimal overhead\"."),
    Figure("6a", "Figure 6a: latency, DDP sockets", "lines", "bytes a message", is_x_bytes=True,
           published=PUBLISHED_LATENCY,
           note=f"{_LATENCY_NOTE} The paper's text gives what DDP adds to TCP's latency, \"about\" 100 and 5 us, not the latencies "
                "themselves; these are drawn as levels."),
    Figure("6b", "Figure 6b: bandwidth, DDP sockets", "lines", "bytes a message", is_x_bytes=True,
           published=PUBLISHED_BANDWIDTH,
           note=f"{_WINDOW_NOTE} The paper's text gives the peak only, \"about 550 Mbps\" on Gigabit Ethernet."),
]


def measure(recorder):
    place = pair.TWO_CPUS if recorder.is_pinned else pair.ANYWHERE
    off = [ways.PLAIN, ways.PRELOADED]
    engines = [ways.PLAIN, *ways.engines()]
    for what, sizes, figures in (("latency", LATENCY_SIZES, ("5a", "6a")), ("window", BANDWIDTH_SIZES, ("5b", "6b"))):
        unit, key, better = ("us one way", "p50_us", "lower") if what == "latency" else ("Mb/s", "mbit_s", "higher")
        for figure, compared in zip(figures, (off, engines)):
            for size in recorder.thin(sizes):
                name = f"{figure} {what} {size_name(size)}"
                options = [f"--size={size}", "--cc=cubic"]
                if not recorder.wants(name):
                    continue
                recorder.compare(figure, name, size, unit, better, compared,
                                 lambda way: pair.run("stream_peer", way, what,
                                                      [*options, f"--seconds={recorder.seconds}"], place), key)
                if (what, size) in COUNTED and not recorder.is_quick:
                    pair.count_into(recorder.cases[-1], compared, what, options, place, size)

