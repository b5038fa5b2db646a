#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""test_report.py decides whether a change is good: no way of failing may pass it unnoticed."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

REPORT = pathlib.Path(__file__).resolve().parent / "test_report.py"
PASS = '<testcase name="{}" classname="S" status="run" result="completed"/>'
FAIL = '<testcase name="{}" classname="S" status="run" result="completed"><failure message="a.cpp:1 bad"/></testcase>'
SKIP = '<testcase name="{}" classname="S" status="run" result="skipped"><skipped message="a.cpp:1&#10;no net"/></testcase>'


class TestReportTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.builds = []

    def add_build(self, *tests):
        """Each test is (name, meson's result, cases or None for a test that is no GoogleTest, output)."""
        build = pathlib.Path(self.folder.name) / f"build{len(self.builds)}"
        (build / "meson-logs").mkdir(parents=True)
        with open(build / "meson-logs" / "testlog.json", "w", encoding="utf-8") as log:
            for name, result, cases, output in tests:
                print(json.dumps({"name": f"ddpsock:unit / {name}", "result": result, "returncode": 1, "stdout": output}),
                      file=log)
                if cases is not None:
                    xml = "<testsuites><testsuite name='S'>" + "".join(cases) + "</testsuite></testsuites>"
                    (build / f"{name}.xml").write_text(xml)
        self.builds.append(str(build))

    def report(self):
        run = subprocess.run([sys.executable, str(REPORT), *self.builds], capture_output=True, text=True)
        return run.returncode, run.stdout.splitlines()

    def test_counts_cases_and_plain_tests(self):
        self.add_build(("a", "OK", [PASS.format("x"), PASS.format("y")], ""), ("script", "OK", None, ""))
        self.assertEqual(self.report(), (0, ["3 passed, 0 failed, 0 skipped"]))

    def test_fails_with_the_message_of_a_failed_case(self):
        self.add_build(("a", "FAIL", [PASS.format("x"), FAIL.format("y")], ""))
        status, lines = self.report()
        self.assertEqual((status, lines[-1]), (1, "1 passed, 1 failed, 0 skipped"))
        self.assertIn("a.cpp:1 bad", lines)

    def test_fails_when_a_program_dies_though_all_its_cases_passed(self):
        self.add_build(("a", "FAIL", [PASS.format("x")], "LeakSanitizer: 8 bytes"))
        status, lines = self.report()
        self.assertEqual((status, lines[-1]), (1, "1 passed, 1 failed, 0 skipped"))
        self.assertIn("LeakSanitizer: 8 bytes", lines)

    def test_fails_when_a_program_dies_before_it_wrote_results(self):
        self.add_build(("a", "TIMEOUT", None, ""))
        self.assertEqual(self.report()[0], 1)

    def test_fails_when_nothing_ran_in_one_build(self):
        self.add_build(("a", "OK", [PASS.format("x")], ""))
        self.add_build()
        self.assertEqual(self.report()[0], 1)

    def test_counts_a_case_of_two_builds_once_and_its_failure_in_either(self):
        self.add_build(("a", "OK", [PASS.format("x"), PASS.format("y")], ""))
        self.add_build(("a", "FAIL", [PASS.format("x"), FAIL.format("y")], ""))
        self.assertEqual(self.report()[1][-1], "1 passed, 1 failed, 0 skipped")

    def test_counts_all_runs_of_a_build(self):
        self.add_build(("a", "OK", [PASS.format("x")], ""))
        later = {"name": "ddpsock:alone / b", "result": "FAIL", "returncode": 1, "stdout": "two calls more"}
        (pathlib.Path(self.builds[0]) / "meson-logs" / "testlog-alone.json").write_text(json.dumps(later) + "\n")
        status, lines = self.report()
        self.assertEqual((status, lines[-1]), (1, "1 passed, 1 failed, 0 skipped"))
        self.assertIn("two calls more", lines)

    def test_says_why_something_was_skipped(self):
        self.add_build(("a", "OK", [PASS.format("x"), SKIP.format("y")], ""), ("b", "SKIP", None, "needs two hosts"))
        status, lines = self.report()
        self.assertEqual((status, lines[-1]), (0, "1 passed, 0 failed, 2 skipped"))
        self.assertIn("skipped a: S.y: no net", lines)
        self.assertIn("skipped b: needs two hosts", lines)

    def test_fails_when_everything_was_skipped(self):
        self.add_build(("a", "OK", [SKIP.format("x")], ""))
        self.assertEqual(self.report()[0], 1)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
