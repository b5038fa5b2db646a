#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A quick run of one case, measured for real: samples of every way, results.json, the page, and nothing left behind."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

RUN = pathlib.Path(__file__).resolve().parent / "run.py"
# bench -> a case, and ways that it has.
CASES = {"stream": ("latency 8 B epoll cubic, one CPU", {"plain TCP", "user engine"}),
         "message": ("rate 64 B, 16 outstanding, completed locally, spinning",
                     {"plain TCP", "plain TCP, Nagle", "user engine, message mode", "user engine, message mode, no thread",
                      "shm engine, message mode"}),
         "onesided": ("read 8 B blocking", {"plain TCP, asked and answered", "user engine, message mode", "shm engine, message mode", "shm engine, memory from ddp_alloc"})}
SECONDS = 100


def command(out, *options):
    return [sys.executable, "-B", str(RUN), "--quick", "--out", str(out), *options]


class Quick(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        registry = self.folder / "registry"
        registry.mkdir()
        self.environment = {**os.environ, "DDPSOCK_REGISTRY_DIR": str(registry)}

    def test_one_case_each(self):
        for bench, (name, ways) in CASES.items():
            with self.subTest(bench=bench):
                self.check_one_case(bench, name, ways)

    def check_one_case(self, bench, name, ways):
        out = self.folder / bench
        done = subprocess.run(command(out, bench, "--only", name), env=self.environment, capture_output=True, text=True,
                              timeout=SECONDS)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        (case,) = json.loads((out / f"{bench}.samples.json").read_text())["cases"]
        self.assertEqual(case["name"], name)
        self.assertLessEqual(ways, set(case["samples"]))
        for way, samples in case["samples"].items():
            self.assertEqual(len(samples), 2, way)
            self.assertGreater(min(samples), 0, way)
        rows = json.loads((out / "results.json").read_text())
        self.assertIn(f"{name}, {min(w for w in ways if w.startswith('user engine'))}", [r["case"] for r in rows])
        self.assertIn("A quick run", (out / "report.html").read_text())

    def test_too_few_rounds_are_refused(self):
        done = subprocess.run([sys.executable, "-B", str(RUN), "stream", "--rounds", "3"], capture_output=True, text=True, timeout=SECONDS)
        self.assertEqual(done.returncode, 2)
        self.assertIn("say nothing", done.stderr)

    def test_a_signal_ends_what_was_started(self):
        process = subprocess.Popen(command(self.folder / "out", "stream", "--seconds", "20"), env=self.environment, stdout=subprocess.DEVNULL,
                                   start_new_session=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        deadline = time.monotonic() + SECONDS
        while len(members(process.pid)) < 3:
            self.assertLess(time.monotonic(), deadline, "no pair was started")
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(SECONDS), 128 + signal.SIGTERM)
        self.assertEqual(members(process.pid), [])


def members(session):
    """The processes of a session that still run."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


if __name__ == "__main__":
    unittest.main()
