#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What ./dev builds while tests run: a build that fails is told, and nothing of it outlives ./dev."""

import os
import pathlib
import select
import subprocess
import sys
import tempfile
import unittest

DEV = pathlib.Path(__file__).resolve().parent.parent / "dev"
SCRIPT = """
source "$1"
cd "$2"
build_sanitized() { %s; }
own_registry
begin_build_sanitized
%s
finish_build_sanitized
echo after
"""


class Meanwhile(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_dev(self, build, meanwhile=":"):
        return subprocess.run(["bash", "-c", SCRIPT % (build, meanwhile), "bash", str(DEV), self.folder],
                              env={**os.environ, "TMPDIR": self.folder}, capture_output=True, text=True, timeout=60)

    def test_goes_on_behind_a_build(self):
        done = self.run_dev("echo built")
        self.assertEqual((done.returncode, done.stdout), (0, "after\n"))
        self.assertEqual((pathlib.Path(self.folder) / "build" / "sanitized.log").read_text(), "built\n")

    def test_takes_only_idle_time(self):
        self.run_dev("chrt --pid $BASHPID")
        self.assertIn("SCHED_IDLE", (pathlib.Path(self.folder) / "build" / "sanitized.log").read_text())

    def test_ends_with_the_log_of_a_build_that_fails_at_any_step(self):
        done = self.run_dev("echo no such header; false; echo not reached")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("no such header", done.stderr)
        self.assertNotIn("not reached", done.stderr)

    def test_ends_the_build_with_itself(self):
        ended = 'until [[ -s pid ]]; do sleep 0.01; done; exit 3'
        done = self.run_dev("sleep 1000 & echo $! >part; mv part pid; wait", ended)
        self.assertEqual(done.returncode, 3)
        self.assertTrue(self.is_gone(int((pathlib.Path(self.folder) / "pid").read_text())))
        self.assertEqual([p.name for p in pathlib.Path(self.folder).glob("tmp.*")], [])

    def is_gone(self, pid):
        """It has been sent its signal by now, and has only to be run."""
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            return True
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        is_readable = bool(poller.poll(10_000))
        os.close(fd)
        return is_readable


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main()
