#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""needs.py names what the benchmarks start, and no more than one asks for."""

import pathlib
import re
import sys
import unittest

import needs
from benches import BENCHES

PROGRAM = re.compile(r'"((?:stream|message|onesided|connections|short)_peer|passthrough_calls|steps)"')


class Needs(unittest.TestCase):
    def test_every_benchmark_is_known(self):
        self.assertEqual(list(needs.OF), list(BENCHES))

    def test_every_program_that_a_benchmark_names_is_built_for_it(self):
        for name, module in BENCHES.items():
            named = PROGRAM.findall(pathlib.Path(module.__file__).read_text(encoding="utf-8"))
            self.assertLessEqual({f"bench/{program}" for program in named}, set(needs.OF[name].programs), name)

    def test_only_the_guest_needs_its_kernel(self):
        self.assertEqual(needs.told("lab", ["guest", "peers"]), "lab")
        self.assertEqual(needs.told("lab", [name for name in BENCHES if name != "guest"]), "")

    def test_tells_each_word_once(self):
        self.assertEqual(needs.told("targets", ["stream", "paper"]), "shim/libddpsock.so shim/ddprun bench/line_probe bench/stream_peer")
        self.assertEqual(needs.told("packages", ["iperf"]), " ".join([*needs.COMMON, "iperf3"]))


if __name__ == "__main__":
    sys.exit(unittest.main())
