#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`./dev lab run` as its caller sees it: output, exit status, what is said about a failure."""

import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True

import guest

LAB = pathlib.Path(__file__).resolve().parent / "lab.py"


class Run(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def lab(self, *arguments, env=None, cwd=None):
        began = time.monotonic()
        done = subprocess.run([sys.executable, "-B", str(LAB), "run", "--name", "run_test", *map(str, arguments)],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90, cwd=cwd,
                              env={**os.environ, **(env or {})})
        self.took = time.monotonic() - began
        return done

    def script(self, text, mode=0o644):
        path = self.folder / "a script.sh"
        path.write_text(text)
        path.chmod(mode)
        return path

    def test_passes_arguments_output_and_status(self):
        # Below /tmp, where the guest has a folder of its own.
        script = self.script('echo "out:$1:$GIVEN:$PWD"; echo err >&2; exit 7\n')
        done = self.lab("--env", "GIVEN=x;y", script, "a  b'\"$", cwd=self.folder)
        self.assertEqual((done.returncode, done.stdout), (7, f"out:a  b'\"$:x;y:{self.folder}\n"))
        self.assertRegex(done.stderr, "(?s)^err\n.*ended with status 7 in run_test")

    def test_a_script_that_hangs_is_ended_at_its_time_limit(self):
        # Directly in /tmp, which cannot be shown to the guest as a whole.
        with tempfile.NamedTemporaryFile("w", dir="/tmp", suffix=".sh") as script:
            script.write("echo begun; sleep 1000\n")
            script.flush()
            done = self.lab("--timeout", "5", script.name)
        self.assertEqual((done.returncode, done.stdout), (242, "begun\n"))
        self.assertRegex(done.stderr, "lab: .*\\.sh did not end within 5 s in run_test\nthe guest's console")

    def test_two_guests_know_their_places(self):
        script = self.script('#!/bin/sh\necho "$LAB_GUEST $LAB_ADDRESS $LAB_PEER"; exit $((LAB_GUEST - 1))\n', 0o755)
        done = self.lab("--guests", "2", script)
        self.assertEqual(sorted(done.stdout.splitlines()), ["[1] 1 10.9.0.1 10.9.0.2", "[2] 2 10.9.0.2 10.9.0.1"])
        self.assertEqual(done.returncode, 1)
        self.assertIn("ended with status 1 in guest2", done.stderr)

    def test_a_kernel_that_was_not_built_is_told(self):
        done = self.lab("true", env={"DDPSOCK_LAB_CACHE": str(self.folder), "DDPSOCK_LAB_KERNEL": ""})
        self.assertEqual(done.returncode, 239)
        self.assertRegex(done.stderr, "no guest kernel at .*; run ./dev lab build")

    def test_a_qemu_that_is_not_there_is_told(self):
        for name in ("dpkg-query", "gcc"):
            (self.folder / name).symlink_to(shutil.which(name))
        done = self.lab(shutil.which("true"), env={"PATH": str(self.folder)})
        self.assertEqual(done.returncode, 239)
        self.assertIn("qemu-system-x86_64 is not installed; ./dev lab build installs it", done.stderr)

    def test_a_script_that_is_not_there_is_told(self):
        done = self.lab(self.folder / "none.sh")
        self.assertEqual((done.returncode, done.stderr), (239, f"lab: there is no file {self.folder / 'none.sh'}\n"))


class Shell(unittest.TestCase):
    def test_is_interactive_and_its_exit_ends_the_guest(self):
        ours, theirs = os.openpty()
        with open(ours, "r+b", buffering=0) as terminal:
            shell = subprocess.Popen([sys.executable, "-B", str(LAB), "shell", "--name", "run_test_shell"], stdin=theirs,
                                     stdout=theirs, stderr=theirs, start_new_session=True)
            os.close(theirs)
            self.addCleanup(shell.wait)
            self.addCleanup(shell.kill)
            self.read_until(terminal, b"# ")
            terminal.write(b"echo $((6 * 7)) on $(tty); exit 5\n")
            self.read_until(terminal, b"42 on /dev/ttyS0")
            self.assertEqual(shell.wait(30), 5)

    def read_until(self, terminal, text):
        seen, deadline = b"", time.monotonic() + 60
        while text not in seen:
            self.assertTrue(select.select([terminal], [], [], max(0, deadline - time.monotonic()))[0], seen)
            seen += terminal.read(4096)

    def test_without_a_terminal_is_refused(self):
        done = subprocess.run([sys.executable, "-B", str(LAB), "shell"], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=30)
        self.assertEqual((done.returncode, done.stderr), (239, "lab: a shell needs a terminal\n"))


if __name__ == "__main__":
    guest.skip_without_kernel()
    unittest.main()
