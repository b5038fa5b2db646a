#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Guests that do not boot, that panic, and runners that die: each is told apart, in bounded time, and leaves nothing."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

sys.dont_write_bytecode = True

import accel
import guest
import kernel
import qemu
import results

HERE = pathlib.Path(__file__).resolve().parent
# As a kernel: no header, so that it is loaded as the oldest kernels were, and started; it stops with interrupts off.
SILENT = b"\xfa\xf4" * (128 << 10)
PARENT = """
import sys
sys.path.append(sys.argv[1])
import guest
g = guest.Guest("failure_test_orphan", guest.Options(accel="tcg"))
g.boot()
print(g.pid, flush=True)
g.wait_until_ready()
"""


def is_alive(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


class Failures(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def boot_image(self, content, seconds):
        path = self.folder / "image"
        path.write_bytes(content)
        with unittest.mock.patch.dict(os.environ, {"DDPSOCK_LAB_KERNEL": str(path)}):
            began = time.monotonic()
            with self.assertRaises(guest.NeverBooted) as caught:
                with guest.Guest("failure_test", guest.Options(accel="tcg", boot_seconds=seconds)):
                    pass
            self.assertLess(time.monotonic() - began, seconds + qemu.STOP_SECONDS + 5)
        return str(caught.exception)

    def test_a_kernel_that_is_none_is_told_with_what_qemu_says(self):
        self.assertRegex(self.boot_image(b"not a kernel", 30), "(?s)never booted: QEMU ended with status 1: .*kernel")

    def test_a_kernel_that_prints_nothing_is_given_up(self):
        self.assertRegex(self.boot_image(SILENT, 2), "(?s)did not boot within 2 s.*console is empty")

    def test_a_guest_without_init_is_a_panic_with_its_console(self):
        with unittest.mock.patch.object(qemu, "INIT", self.folder / "no-init.py"), self.assertRaises(guest.Panic) as caught:
            with guest.Guest("failure_test"):
                pass
        self.assertRegex(str(caught.exception), "(?s)Attempted to kill init.*console:.*can't open file")

    def test_an_init_that_cannot_set_up_says_why(self):
        with self.assertRaisesRegex(guest.NeverBooted, "init failed: ip -batch: .*eth0"):
            with guest.Guest("failure_test", addresses=[["10.9.0.1/24"]]):
                pass

    def test_a_panic_is_told_at_once(self):
        with guest.Guest("failure_test") as g:
            process = g.start(["sleep", "1000"])
            # Init ends when the runner says what it does not know, and the kernel with it.
            g.send(99, 0, {})
            began = time.monotonic()
            with self.assertRaises(guest.Panic) as caught:
                process.wait(60)
            self.assertLess(time.monotonic() - began, 20)
        self.assertRegex(str(caught.exception), "(?s)kernel panicked.*Kernel panic.*console:.*WireError")

    def test_a_second_lasts_one_where_the_tsc_was_measured_wrongly(self):
        def wrong(accelerator):
            usual = append(accelerator)
            self.assertEqual(usual.count(" init="), 1)
            return usual.replace(" init=", " tsc_early_khz=20000 init=")

        def uptime(machine):
            return float(machine.run(["cat", "/proc/uptime"], seconds=30).stdout.split()[0])

        append = qemu._append
        with unittest.mock.patch.object(qemu, "_append", wrong), guest.Guest("failure_test", guest.Options(accel="tcg")) as g:
            self.assertIn(b"Detected 20.000 MHz", g.run(["dmesg"], seconds=30).stdout)
            began, first = time.monotonic(), uptime(g)
            time.sleep(1)
            # By its TSC a hundred seconds would be over.
            self.assertLess(uptime(g) - first, 2 * (time.monotonic() - began))

    def test_a_qemu_that_dies_is_told(self):
        with guest.Guest("failure_test") as g:
            process = g.start(["sleep", "1000"])
            os.kill(g.pid, signal.SIGKILL)
            with self.assertRaisesRegex(guest.Ended, "QEMU ended with status -9"):
                process.wait(20)

    def test_qemu_dies_with_its_runner(self):
        # A guest that runs ends when it hears no more from its runner; this one never hears anything.
        image = self.folder / "silent"
        image.write_bytes(SILENT)
        parent = subprocess.Popen([sys.executable, "-B", "-c", PARENT, str(HERE)], stdout=subprocess.PIPE, text=True,
                                  env={**os.environ, "DDPSOCK_LAB_KERNEL": str(image)})
        try:
            pid = int(parent.stdout.readline())
            self.addCleanup(lambda: is_alive(pid) and os.kill(pid, signal.SIGKILL))
            self.assertTrue(is_alive(pid))
        finally:
            parent.kill()
            parent.communicate()
        deadline = time.monotonic() + 10
        while is_alive(pid):
            self.assertLess(time.monotonic(), deadline, "QEMU outlived its runner")
            time.sleep(0.02)

    def test_a_folder_is_used_by_one_run_at_a_time(self):
        program = "import sys; sys.path.append(sys.argv[1]); import results; results.claim('failure_test')"
        results.claim("failure_test")
        done = subprocess.run([sys.executable, "-B", "-c", program, str(HERE)], capture_output=True, text=True, timeout=20)
        self.assertIn("another run uses build/lab/failure_test", done.stderr)
        for name in ("../elsewhere", ".hidden", "", "a/b"):
            with self.assertRaisesRegex(results.ResultsError, "is no name"):
                results.claim(name)


class Probe(unittest.TestCase):
    def test_sees_a_kernel_that_boots_and_one_that_does_not(self):
        self.assertTrue(accel.probe(kernel.image(), 60, "tcg"))
        with tempfile.TemporaryDirectory() as folder:
            silent = pathlib.Path(folder) / "silent"
            silent.write_bytes(SILENT)
            self.assertFalse(accel.probe(silent, 1, "tcg"))

    def test_asks_once(self):
        with tempfile.TemporaryDirectory() as folder, \
                unittest.mock.patch.dict(os.environ, {"DDPSOCK_LAB_CACHE": folder}), \
                unittest.mock.patch.object(os, "access", return_value=True), \
                unittest.mock.patch.object(accel, "probe", return_value=True) as probe:
            for _ in range(2):
                self.assertEqual(accel.choose("auto", "/a/kernel"), "kvm")
            self.assertEqual(probe.call_count, 1)
            probe.return_value = False
            self.assertEqual(accel.choose("auto", "/another/kernel"), "tcg")
            (pathlib.Path(folder) / f"kvm-{os.geteuid()}.json").write_text("{")
            self.assertEqual(accel.choose("auto", "/another/kernel"), "tcg")
            self.assertEqual(probe.call_count, 3)


if __name__ == "__main__":
    guest.skip_without_kernel()
    unittest.main()
