#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""test_targets.py decides what a build with sanitizers has: a test that is not built must not be forgotten."""

import sys
import unittest

import test_targets

TARGETS = [{"id": "a@exe", "filename": ["/b/a"]}, {"id": "p@exe", "filename": ["/b/p"]},
           {"id": "l@sha", "filename": ["/b/l.so", "/b/l.a"]}]
TESTS = [{"suite": ["ddpsock:unit", "ddpsock:threads"], "depends": ["a@exe"]},
         {"suite": ["sim"], "depends": ["p@exe", "l@sha"]}, {"suite": ["ddpsock:shim"], "depends": ["a@exe", "p@exe"]}]


class FilesNeeded(unittest.TestCase):
    def expect(self, suites, names):
        self.assertEqual(test_targets.files_needed(TESTS, TARGETS, set(suites)), names)

    def test_of_each_suite_once(self):
        self.expect(["unit"], ["/b/a"])
        self.expect(["threads", "unit"], ["/b/a"])
        self.expect(["unit", "shim"], ["/b/a", "/b/p"])

    def test_all_files_of_a_target(self):
        self.expect(["sim"], ["/b/l.a", "/b/l.so", "/b/p"])

    def test_no_such_suite(self):
        self.expect(["uni"], [])


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main()
