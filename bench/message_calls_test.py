#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The system calls of a message in message mode, as message/README.md has them. Skipped without strace.

What other load on the machine changes is not judged: a sleep that did not happen is a call fewer, and never one more; what
comes with time (the question for the EMSS, ticks of the thread) is held against the time that has passed.
"""

import collections
import dataclasses
import os
import pathlib
import re
import shutil
import tempfile
import unittest

import pair
import ways

MESSAGES = 512
EDGE = 16  # messages at either end of a run that are not judged
EMSS_SECONDS = 0.010  # engine/user/user_engine.cpp
LOOKS_IN_VAIN, PROBE = 4, 64  # message/queue.h, LookHabit
TICK_SECONDS = 0.001
# What the thread and the caller need at most to hand a connection over and back.
CALLS_OF_A_TURN = 11
LINE = re.compile(r"(\d+) +(\d+\.\d+) (.*)")


@dataclasses.dataclass
class Call:
    thread: int
    time: float
    name: str
    fd: int  # or whatever else a number is the first argument
    result: str  # from the = on

    @property
    def is_in_vain(self):
        return "EAGAIN" in self.result

    @property
    def is_tick(self):
        return self.name == "io_uring_enter" and "ETIME" in self.result or self.name == "epoll_wait" and self.result.startswith("0")


def calls_in(trace):
    """Of a file that strace -f -ttt wrote, in the order of their ends."""
    begun = {}
    for line in trace.splitlines():
        if not (match := LINE.match(line)):
            continue
        thread, time, rest = int(match[1]), float(match[2]), match[3]
        if rest.endswith("<unfinished ...>"):
            begun[thread] = rest
            continue
        if rest.startswith("<..."):
            rest = begun.pop(thread, "") + rest
        if call := re.match(r"(\w+)\((\d+)?", rest):
            yield Call(thread, time, call[1], int(call[2] or -1), rest.rpartition(" = ")[2])


class Side:
    """What one end did for the messages in the middle of a run."""

    def __init__(self, trace):
        calls = list(calls_in(trace))
        sends = collections.Counter(call.fd for call in calls if call.name == "sendto")
        self.socket = sends.most_common(1)[0][0]
        sent_at = [n for n, call in enumerate(calls) if self._is_on_socket(call, "sendto")]
        self.calls = calls[sent_at[EDGE]:sent_at[-EDGE]]
        self.caller = calls[0].thread
        self.messages = len(sent_at) - 2 * EDGE
        self.seconds = self.calls[-1].time - self.calls[0].time
        received = [call for call in self.calls if self._is_on_socket(call, "recvfrom")]
        self.received = sum(not call.is_in_vain for call in received)
        self.polls = sum(call.name == "poll" for call in self.calls)
        self.questions = sum(self._is_on_socket(call, "getsockopt") for call in self.calls)
        self.ticks = sum(call.is_tick for call in self.calls)
        self.others = collections.Counter(call.name for call in self.calls if not self._is_of_a_message(call))

    def _is_on_socket(self, call, name):
        return call.name == name and call.fd == self.socket

    def _is_of_a_message(self, call):
        return call.is_tick or call.name == "poll" or call.fd == self.socket and call.name in ("sendto", "recvfrom", "getsockopt")

    @property
    def turns_of_the_thread(self):
        """How often it did more than to sleep."""
        own = [call.name not in ("io_uring_enter", "epoll_wait") for call in self.calls if call.thread != self.caller]
        return sum(is_at_work and not was for was, is_at_work in zip([False, *own], own))

    def __str__(self):
        return str({name: value for name, value in vars(self).items() if name != "calls"})


def sides(way, what, wait, window=1):
    with tempfile.TemporaryDirectory() as folder:
        traces = [pathlib.Path(folder) / side for side in ("server", "client")]
        tracers = tuple(("strace", "-f", "-ttt", "-s", "0", "-o", str(trace)) for trace in traces)
        pair.run("message_peer", way, what, [f"--wait={wait}", f"--window={window}", f"--count={MESSAGES * window}"],
                 dataclasses.replace(pair.ANYWHERE, prefixes=tracers))
        return [Side(trace.read_text()) for trace in traces]


@unittest.skipUnless(shutil.which("strace"), "strace is not installed")
class Calls(unittest.TestCase):
    def setUp(self):
        os.environ["DDPSOCK_REGISTRY_DIR"] = self.enterContext(tempfile.TemporaryDirectory())

    def expect_of_a_message(self, side, pieces=1):
        """One send (that is how they are counted), one receive, at most one sleep before it."""
        self.assertGreaterEqual(side.received, side.messages - 1, side)
        self.assertLessEqual(side.received, pieces * side.messages + 1, side)
        self.assertLessEqual(side.polls, pieces * side.messages + 1, side)
        self.assertLessEqual(side.questions, side.seconds / EMSS_SECONDS + 1, side)

    def expect_few_looks(self, side):
        """After so many in vain there is but one now and then, until a look finds something."""
        vain = slept = received = 0
        for call in side.calls:
            slept += call.name == "poll"
            if call.name != "recvfrom":
                continue
            vain += call.is_in_vain
            received += not call.is_in_vain
            self.assertLessEqual(vain, LOOKS_IN_VAIN + received / PROBE + 2, side)
            if not call.is_in_vain:
                if not slept:
                    vain = received = 0
                slept = 0

    def test_a_message_that_is_slept_for(self):
        for side in sides(ways.MESSAGES_CALLER, "latency", "block"):
            self.expect_of_a_message(side)
            self.expect_few_looks(side)
            self.assertEqual(side.others, {})

    def test_a_window_that_is_slept_for(self):
        server, client = sides(ways.MESSAGES_CALLER, "window", "block", 32)
        self.expect_of_a_message(server, pieces=2)  # the window may come in two
        self.expect_of_a_message(client)
        for side in server, client:
            self.expect_few_looks(side)
            self.assertEqual(side.others, {})

    def test_the_thread_adds_nothing_to_the_calls_of_a_message(self):
        for wait in "block", "spin":
            for side in sides(ways.MESSAGES, "latency", wait):
                self.expect_of_a_message(side)
                # The thread comes with time. A message takes a third of a tick here; on a busy machine longer, and then the
                # thread takes over once in a while.
                ticks = side.seconds / TICK_SECONDS
                self.assertLessEqual(side.ticks, ticks + 1, side)
                self.assertLessEqual(side.turns_of_the_thread, ticks + side.messages / 8, side)
                self.assertLessEqual(side.others.total(), side.messages / 2 + CALLS_OF_A_TURN * side.turns_of_the_thread, side)


if __name__ == "__main__":
    unittest.main()
