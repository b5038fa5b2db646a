#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The captures are in order by Wireshark's judgement, and their lists of operations are what it reads in them."""

import pathlib
import shutil
import sys
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent
CAPTURES = FOLDER.parent / "captures"
sys.path[:0] = [str(FOLDER.parent), str(FOLDER)]
sys.dont_write_bytecode = True

import decode  # noqa: E402
import operations  # noqa: E402

SERVER_PORTS = {"siw-rping-4000": 7174}


class Captures(unittest.TestCase):
    def test_every_capture_is_known(self):
        self.assertEqual({p.stem for p in CAPTURES.glob("*.pcap")}, set(SERVER_PORTS))

    def test_wireshark_flags_two_notes_and_nothing_else(self):
        for name, port in SERVER_PORTS.items():
            decoded = decode.check(CAPTURES / f"{name}.pcap", port, crc=False, connections=1)
            counts = sorted(decoded.notes.items())
            self.assertEqual([count for _, count in counts], [2, 2])
            for (note, _), expected in zip(counts, sorted(decode.EXPECTED_NOTES)):
                self.assertTrue(note.startswith(expected), note)

    def test_the_lists_are_what_wireshark_reads(self):
        for name, port in SERVER_PORTS.items():
            expected = (CAPTURES / f"{name}.txt").read_text().splitlines()
            self.assertEqual(operations.operations(str(CAPTURES / f"{name}.pcap"), port), expected)


if __name__ == "__main__":
    if not shutil.which("tshark"):
        print("skipped: tshark is not installed, so nothing can be compared with it")
        sys.exit(77)
    unittest.main()
