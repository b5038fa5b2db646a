#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The frames between the runner and the guest, cut everywhere."""

import json
import sys
import unittest

sys.dont_write_bytecode = True

import wire


class Frames(unittest.TestCase):
    def setUp(self):
        self.sent = [(wire.HELLO, 0, b""), (wire.STDOUT, 7, b"x" * 300), (wire.EXIT, 7, b'{"status": 3}')]
        self.stream = b"".join(wire.frame(*f) for f in self.sent)

    def test_come_out_whole_wherever_the_stream_is_cut(self):
        for cut in range(len(self.stream) + 1):
            frames = wire.Frames()
            self.assertEqual(frames.feed(self.stream[:cut]) + frames.feed(self.stream[cut:]), self.sent)

    def test_come_out_of_single_bytes(self):
        frames = wire.Frames()
        self.assertEqual([f for i in range(len(self.stream)) for f in frames.feed(self.stream[i:i + 1])], self.sent)

    def test_carry_json(self):
        [(kind, number, payload)] = wire.Frames().feed(wire.frame(wire.START, 2, {"argv": ["a b", "\0"]}))
        self.assertEqual((kind, number, json.loads(payload)), (wire.START, 2, {"argv": ["a b", "\0"]}))

    def test_a_length_out_of_bounds_is_refused_before_it_is_waited_for(self):
        with self.assertRaises(wire.WireError):
            wire.Frames().feed(wire.HEADER.pack(wire.STDOUT, 1, wire.MAX_PAYLOAD + 1))
        with self.assertRaises(wire.WireError):
            wire.frame(wire.STDOUT, 1, bytes(wire.MAX_PAYLOAD + 1))


if __name__ == "__main__":
    unittest.main()
