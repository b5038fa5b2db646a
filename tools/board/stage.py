# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a scenario plays on: two ends, each started as the column wants it, files whose bytes are known, and waits that end."""

import hashlib
import json
import os
import pathlib
import random
import re
import subprocess
import time

import room
from runner import PYTHON

LISTEN = "0A"
# Not nobody: that is a name for many in user namespaces, whose word is not believed.
OTHER_USER = "daemon"


class Failed(Exception):
    pass


class Skipped(Exception):
    pass


def expect(holds, what):
    if not holds:
        raise Failed(what)


def wait_until(holds, what, seconds=20):
    deadline = time.monotonic() + seconds
    while not (value := holds()):
        if time.monotonic() > deadline:
            raise Failed(f"waited {seconds} seconds: {what}")
        time.sleep(0.02)
    return value


def is_listening(port):
    """Read from the kernel: a connection made to find out would be one that the test did not want."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in pathlib.Path(table).read_text().splitlines()[1:]:
            local, _, state = line.split()[1:4]
            if state == LISTEN and int(local.rpartition(":")[2], 16) == port:
                return True
    return False


def digest(path_or_bytes):
    data = path_or_bytes if isinstance(path_or_bytes, bytes) else pathlib.Path(path_or_bytes).read_bytes()
    return hashlib.sha256(data).hexdigest()


class Stage:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.options = json.loads(os.environ["BOARD_OPTIONS"])
        self.sources = pathlib.Path(os.environ["BOARD_SOURCES"]) if os.environ["BOARD_SOURCES"] else None
        self.server_loading = json.loads(os.environ["BOARD_SERVER"])
        elsewhere, self.client_user = os.environ.get("BOARD_ELSEWHERE"), OTHER_USER if os.environ["BOARD_CLIENT_USER"] else ""
        self.is_elsewhere = elsewhere is not None
        self.address = room.ADDRESS_HERE if self.is_elsewhere else "127.0.0.1"
        self.client_loading = json.loads(os.environ["BOARD_CLIENT"])
        if self.client_user:
            self.client_loading = ["setpriv", f"--reuid={self.client_user}", "--regid=nogroup", "--clear-groups", "--",
                                   *self.client_loading]
        if self.is_elsewhere:
            self.client_loading = ["nsenter", "-t", elsewhere, "-n", "--", *self.client_loading]
        # Where the client, whoever it is, can write.
        self.client_folder = self.folder / "client"
        self.client_folder.mkdir(exist_ok=True)
        self.client_folder.chmod(0o777)
        self.started = []

    def server(self, *command, port=None, **options):
        """Starts it; returns once it listens."""
        return self._start(self.server_loading, command, port, options)

    def start_client(self, *command, port=None, **options):
        return self._start(self.client_loading, command, port, {"cwd": self.client_folder} | options)

    def plain(self, *command, **options):
        """Runs what is no end of a connection."""
        return self._run([], command, options)

    def client(self, *command, **options):
        """Runs it to its end and returns what it printed. Options: input, seconds, status (of success), env."""
        return self._run(self.client_loading, command, {"cwd": self.client_folder} | options)

    def at_the_server(self, *command, **options):
        """Runs at the server's end what is not the server: a tool that asks it to reload."""
        return self._run(self.server_loading, command, options)

    def _start(self, loading, command, port, options):
        log = open(self.folder / f"log{len(self.started)}", "wb")
        process = subprocess.Popen([*loading, *map(str, command)], **({"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log,
                                                                       "cwd": self.folder, "start_new_session": True} | options))
        process.log = pathlib.Path(log.name)
        self.started.append(process)
        log.close()
        if port is not None:
            def ready():
                if process.poll() not in (None, 0):  # 0: it goes on in the background
                    raise Failed(f"{command[0]}: status {process.returncode}: {self.said(process)}")
                return is_listening(port)
            wait_until(ready, f"{command[0]} listens on port {port}")
        return process

    def _run(self, loading, command, options):
        seconds, status = options.pop("seconds", 60), options.pop("status", 0)
        given = {"stdin": subprocess.DEVNULL} if "input" not in options else {}
        try:
            done = subprocess.run([*loading, *map(str, command)], capture_output=True, timeout=seconds,
                                  **({"cwd": self.folder} | given | options))
        except subprocess.TimeoutExpired as late:
            words = ((late.stdout or b"") + (late.stderr or b"")).decode(errors="replace")
            raise Failed(f"{command[0]}: not done after {seconds} seconds: {words[-500:]}") from None
        if status is not None and done.returncode != status:
            words = (done.stdout[-1000:] + done.stderr[-1000:]).decode(errors="replace")
            raise Failed(f"{' '.join(map(str, command))[:200]}: status {done.returncode}: {words}")
        self.errors = done.stderr.decode(errors="replace")
        return done.stdout

    def said(self, process):
        return process.log.read_text(errors="replace")[-1500:]

    def stop(self, process, seconds=20):
        """Asks it to end, as an administrator would, and wants to see it do so."""
        process.terminate()
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failed(f"{process.args[-1]} does not end when asked to") from None

    def write(self, name, text, mode=0o644):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    def data(self, name, size, seed=7):
        """A file of known bytes that everybody can read."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random.Random(f"{name} {seed}").randbytes(size))
        path.chmod(0o644)
        return path

    def end(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.wait()


def number_in(pattern, text):
    """The number that the pattern's group finds."""
    text = text.decode(errors="replace") if isinstance(text, bytes) else text
    found = re.search(pattern, text)
    expect(found, f"no {pattern} in: {text[-500:]}")
    return float(found[1])
