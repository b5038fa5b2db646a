#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The system calls of a message in message mode, as message/README.md has them. Skipped without strace."""

import os
import shutil
import sys
import tempfile
import unittest

import pair
import ways

FEW, MANY = 512, 2560
# What a look now and then (message/queue.h, LookHabit) and the sender's question for the EMSS add. Strace makes a
# message take so long that more of both come to one than without.
RARE = 0.15


def calls_per_message(way, what, wait, window=1):
    """Of both sides: averages by name."""
    options = [f"--wait={wait}", f"--window={window}"]
    runs = [pair.system_calls("message_peer", way, what, [*options, f"--count={n * window}"], pair.ANYWHERE)[0] for n in (FEW, MANY)]
    return [{name: (many[name] - few.get(name, 0)) / (MANY - FEW) for name in many} for few, many in zip(*runs)]


@unittest.skipUnless(shutil.which("strace"), "strace is not installed")
class Calls(unittest.TestCase):
    def setUp(self):
        os.environ["DDPSOCK_REGISTRY_DIR"] = self.enterContext(tempfile.TemporaryDirectory())

    def expect(self, side, **wanted):
        """`wanted` of each, and next to nothing of any other."""
        for name in {*side, *wanted}:
            self.assertLessEqual(side.get(name, 0), wanted.get(name, 0) + RARE, f"{name} in {side}")
        for name, number in wanted.items():
            self.assertGreaterEqual(side.get(name, 0), number - RARE, f"{name} in {side}")

    def test_a_message_that_is_slept_for(self):
        for side in calls_per_message(ways.MESSAGES_CALLER, "latency", "block"):
            self.expect(side, poll=1, recvfrom=1, sendto=1)

    def test_a_window_that_is_slept_for(self):
        server, client = calls_per_message(ways.MESSAGES_CALLER, "window", "block", 32)
        self.assertLessEqual(server["recvfrom"], 2 + RARE)  # the window may come in two pieces
        self.expect(client, poll=1, recvfrom=1, sendto=1)

    def test_the_thread_adds_nothing_to_the_calls_of_a_message(self):
        for wait in "block", "spin":
            for side in calls_per_message(ways.MESSAGES, "latency", wait):
                self.assertLessEqual(side["sendto"], 1 + RARE, side)
                # Each tick of the thread is one epoll_wait, and strace makes a message last a third of a tick; on a busy
                # machine longer, and then the thread takes over once in a while.
                others = {name: n for name, n in side.items() if name not in ("sendto", "recvfrom", "poll", "epoll_wait")}
                self.assertLessEqual(sum(others.values()), 1, side)


if __name__ == "__main__":
    unittest.main()
