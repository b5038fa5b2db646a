#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a message of 8 bytes costs in shared memory, both ends together, is no more than doc/costs.md has it. Skipped where no
process may be stepped."""

import json
import subprocess
import unittest

import machine

MOST_INSTRUCTIONS, MOST_LOCKED = 2000, 9.1


class Steps(unittest.TestCase):
    def test_of_a_small_message(self):
        done = subprocess.run([machine.DDPRUN, "--off", "--engine", "shm", "--", machine.program("steps"), "send", "8"],
                              capture_output=True, text=True, timeout=120, check=False)
        if "ptrace" in done.stderr:
            self.skipTest(done.stderr.strip())
        self.assertEqual(done.returncode, 0, done.stderr)
        counts = json.loads(done.stdout)
        print(done.stdout.strip())
        self.assertLessEqual(counts["instructions"], MOST_INSTRUCTIONS)
        self.assertLessEqual(counts["locked"], MOST_LOCKED)
        self.assertEqual(counts["system_calls"], 0)


if __name__ == "__main__":
    unittest.main()
