# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Starts exchange.c's program, one end or both, and says how it went. For starts_test.py and faults_test.py."""

import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time

SECONDS = 20  # for a whole exchange; what takes longer hangs


class Outcome:
    """What an end said with its last line, its exit status, and what stderr had."""

    def __init__(self, status, text, errors):
        self.status, self.text, self.errors = status, text, errors
        self.said = text.strip().rsplit("\n", 1)[-1]

    @property
    def is_ok(self):
        return self.status == 0 and self.said.startswith("ok")

    @property
    def engines(self):
        return set(self.said.split()[1:])

    @property
    def failure(self):
        """(call, errno) if a call failed and the program said so, else None."""
        found = re.fullmatch(r"failed (\w+) (\d+)", self.said)
        return (found[1], int(found[2])) if found and self.status == 1 else None

    def __repr__(self):
        return f"status {self.status}, {self.text!r}, stderr {self.errors[-600:]!r}"


class End:
    """A running program; what it writes to $EXCHANGE_OUT is read here."""

    def __init__(self, command, env=None, **options):
        self.reader, writer = os.pipe()
        self.errors = tempfile.TemporaryFile()
        env = {**(os.environ if env is None else env), "EXCHANGE_OUT": str(writer)}
        self.text = b""
        self.deadline = time.monotonic() + options.pop("seconds", SECONDS)
        options = {"stdin": subprocess.DEVNULL, "stdout": self.errors, "stderr": self.errors, **options}
        try:
            self.process = subprocess.Popen(command, env=env, pass_fds=(writer, *options.pop("pass_fds", ())),
                                            start_new_session=True, **options)
        finally:
            os.close(writer)

    def read_some(self):
        """False at the end of all writers; raises TimeoutError."""
        left = self.deadline - time.monotonic()
        if left <= 0 or not select.select([self.reader], [], [], left)[0]:
            raise TimeoutError
        some = os.read(self.reader, 4096)
        self.text += some
        return some != b""

    def port(self):
        """None if it ended or hung before it told one."""
        try:
            while not re.search(rb"port \d+\n", self.text):
                if not self.read_some():
                    return None
        except TimeoutError:
            return None
        return re.search(rb"port (\d+)\n", self.text)[1].decode()

    def outcome(self):
        """Of the program when it has ended; a status of None: it hung, and was killed."""
        try:
            while self.read_some():
                pass
            status = self.process.wait(max(0.1, self.deadline - time.monotonic()))
        except (TimeoutError, subprocess.TimeoutExpired):
            status = None
        self.end()
        with self.errors:
            self.errors.seek(0)
            return Outcome(status, self.text.decode(errors="replace"), self.errors.read().decode(errors="replace"))

    def end(self):
        """Whatever still runs of its session."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        self.process.wait()
        if self.reader >= 0:
            os.close(self.reader)
            self.reader = -1


def exchange(server, client):
    """The outcomes of two ends, each a function that starts one with its arguments."""
    serving = server(["server"])
    port = serving.port()
    if port is None:
        return serving.outcome(), None
    connecting = client(["client", port])
    said = connecting.outcome()
    # Whoever serves nobody any more would wait for the next client.
    if not said.is_ok:
        serving.deadline = min(serving.deadline, time.monotonic() + 2)
    return serving.outcome(), said


def clean_environment(**more):
    env = {k: v for k, v in os.environ.items() if not k.startswith("DDPSOCK_") and k != "LD_PRELOAD"}
    return {**env, **more}


def find(program):
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
