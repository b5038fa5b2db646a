# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How a runner says what became of each test: lines of JSON, appended to a file as it happens, so that a crash or a hang
has the name of the test that was running. Who is started again goes on behind the last test that was begun."""

import json
import os

PASS, FAIL, SKIP, HANG, CRASH = "pass", "fail", "skip", "hang", "crash"
FLAKY = "flaky"  # of the native column: its runs did not agree
VERDICTS = (PASS, FAIL, SKIP, HANG, CRASH)
DETAIL_BYTES = 2000

# The tests that a runner runs may replace these.
_open, _write, _close = os.open, os.write, os.close


class Events:
    def __init__(self, path):
        self.path = str(path)
        self.begun = {event["test"] for event in read(path)}

    def start(self, test):
        self._append({"test": test, "state": "start"})

    def end(self, test, verdict, detail=""):
        self._append({"test": test, "state": verdict, "detail": detail[-DETAIL_BYTES:]})

    def _append(self, event):
        fd = _open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            _write(fd, (json.dumps(event) + "\n").encode())
        finally:
            _close(fd)


def read(path):
    """Every whole line."""
    try:
        with open(path, "rb") as file:
            lines = file.read().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines]


def outcomes(events):
    """test -> (verdict, detail), and the test that was begun and not ended, or None."""
    found, running = {}, None
    for event in events:
        if event["state"] == "start":
            running = event["test"]
            continue
        if event["test"] == running:
            running = None
        # A test may end more than once: its subtests, its clean-up. The worst stands.
        known = found.get(event["test"])
        if known is None or RANK[event["state"]] > RANK[known[0]]:
            found[event["test"]] = (event["state"], event["detail"])
    return found, running


RANK = {PASS: 0, SKIP: 1, FAIL: 2, HANG: 3, CRASH: 4}
