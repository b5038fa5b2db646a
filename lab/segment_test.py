#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""rping of rdma-core over siw between two guests, and Wireshark's word on what was on their segment."""

import os
import pathlib
import subprocess
import sys
import time
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests" / "interop"))

import guest

PORT, PINGS, SIZE = 7174, 5, 4000


def in_guest():
    import scene
    rping = ["rping", "-p", str(PORT), "-C", str(PINGS), "-S", str(SIZE), "-V", "-v"]
    # The delay keeps the first FPDU from following siw's Reply at once (scene.py).
    with scene.siw("eth0"), scene.netem("eth0", "delay", "20ms"):
        if scene.number() == 1:
            server = subprocess.Popen([*rping, "-s", "-a", os.environ["LAB_ADDRESS"]])
            scene.wait_until_listening(PORT)
            scene.meet("server")
            return server.wait(30)
        scene.meet("server")
        return subprocess.run([*rping, "-c", "-a", os.environ["LAB_PEER"]], timeout=30).returncode


class TwoGuests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.segment = segment.Segment("segment_test")
        cls.addClassCleanup(cls.segment.stop)
        cls.guests = cls.segment.__enter__().guests

    def test_rping_between_them_is_captured_and_decoded(self):
        processes = [g.start(["/usr/bin/python3", "-B", __file__]) for g in self.guests]
        statuses = segment.wait_all(processes, 60, 10)
        ends = [p.wait(1) for p in processes]
        self.assertEqual(statuses, [0, 0], ends)
        self.assertEqual(ends[1].stdout.count(b"ping data: rdma-ping-"), PINGS)
        for one in self.guests:
            seen = decode.check(str(one.folder / "segment.pcap"), PORT, crc=False)
            [connection] = seen.connections
            self.assertEqual(connection.to_client.messages["Read Request"], PINGS)
            self.assertEqual(connection.to_client.messages["Write"], PINGS)
            self.assertEqual(connection.to_server.bytes_of["Read Response"], PINGS * SIZE)

    def test_one_that_fails_does_not_leave_the_other_waiting(self):
        processes = [self.guests[0].start(["sleep", "1000"]), self.guests[1].start(["false"])]
        began = time.monotonic()
        self.assertEqual(segment.wait_all(processes, 1000, 1), [137, 1])
        self.assertLess(time.monotonic() - began, 60)

    def test_a_time_limit_holds_for_both(self):
        processes = [g.start(["sleep", "1000"]) for g in self.guests]
        with self.assertRaisesRegex(guest.TimedOut, "sleep 1000 did not end within 1 s in guest1"):
            segment.wait_all(processes, 1, 1)


if __name__ == "__main__":
    if os.environ.get("LAB") == "1":
        sys.exit(in_guest())
    import decode
    import segment
    guest.skip_without_kernel()
    unittest.main()
