# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs a module of CPython's own tests, test by test. It is loaded as the column says: both ends are in this process and
its children."""

import faulthandler
import fnmatch
import json
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import events
sys.path.pop(0)


class Result(unittest.TestResult):
    """Says each outcome at once."""

    def __init__(self, listed):
        super().__init__()
        self.listed = listed
        self.verdict = None

    def startTest(self, test):
        super().startTest(test)
        self.verdict = (events.PASS, "")
        self.listed.start(name_of(test))

    def stopTest(self, test):
        super().stopTest(test)
        self.listed.end(name_of(test), *self.verdict)
        self.verdict = None

    def note(self, test, verdict, detail):
        if self.verdict is None:  # of a class or module, outside of any test
            self.listed.end(name_of(test), verdict, detail)
        elif events.RANK[verdict] > events.RANK[self.verdict[0]]:
            self.verdict = (verdict, detail)

    def addError(self, test, error):
        super().addError(test, error)
        self.note(test, events.FAIL, self.errors[-1][1])

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.note(test, events.FAIL, self.failures[-1][1])

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error is not None:
            self.note(test, events.FAIL, str(subtest) + ": " + self._exc_info_to_string(error, test))

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        # Of a class that is skipped as a whole, each test is skipped before it starts.
        self.note(test, events.SKIP, reason)

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.note(test, events.FAIL, "passed, which was not expected")


def name_of(test):
    return test.id().removeprefix("test.")


def flatten(tests):
    for test in tests:
        if isinstance(test, unittest.TestSuite):
            yield from flatten(test)
        else:
            yield test


def main():
    listed, module = events.Events(os.environ["BOARD_EVENTS"]), os.environ["BOARD_PIECE"]
    left_out = json.loads(os.environ["BOARD_LEAVE_OUT"])
    faulthandler.enable()
    from test import support
    # Of "network" only where it means this host: others would ask one outside.
    network = ["network"] if module in json.loads(os.environ["BOARD_OPTIONS"])["network_is_here"] else []
    support.use_resources = ["subprocess", "cpu", "walltime", *network]
    support.verbose = False
    result = Result(listed)
    try:
        tests = unittest.defaultTestLoader.loadTestsFromName(f"test.{module}")
    except unittest.SkipTest as why:
        listed.end(module, events.SKIP, str(why))
        return
    wanted = [test for test in flatten(tests) if name_of(test) not in listed.begun
              and not any(fnmatch.fnmatch(name_of(test), pattern) for pattern in left_out)]
    unittest.TestSuite(wanted).run(result)


if __name__ == "__main__":
    main()
