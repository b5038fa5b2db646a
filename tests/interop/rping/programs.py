# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Starts rping on siw's end of the cable and ddp-rping on the other, and tells how they ended."""

import signal
import subprocess
import threading
import time

import cases
import ports

PROGRAM_SECONDS = 60
END_SECONDS = 20
# Of ddp-rping for each step, where nothing is to go wrong: two emulated processors can be busy for long.
PATIENCE = ("--timeout", 30)


class Program:
    """One that runs, its output collected as it comes."""

    def __init__(self, command):
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                         stderr=subprocess.PIPE, text=True, errors="replace")
        self._began, self._took = time.monotonic(), None
        self.lines = {"stdout": [], "stderr": []}
        self._threads = [threading.Thread(target=self._read, args=(name,), daemon=True) for name in self.lines]
        self._threads.append(threading.Thread(target=self._time, daemon=True))
        for thread in self._threads:
            thread.start()

    def _read(self, name):
        for line in getattr(self._process, name):
            self.lines[name].append(line.rstrip("\n"))

    def _time(self):
        self._process.wait()
        self._took = time.monotonic() - self._began

    def wait_for_line(self, name, text, seconds=END_SECONDS):
        deadline = time.monotonic() + seconds
        while not any(text in line for line in self.lines[name]):
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError(f"{self._process.args} said no '{text}': {self.lines}")
            time.sleep(0.01)

    def wait_until_listening(self, port):
        ports.wait_until_listening(port, self._process, END_SECONDS)

    def signal(self, number):
        self._process.send_signal(number)

    def wait(self, seconds=PROGRAM_SECONDS):
        """Its status (None: it did not end and was killed), output and how long it took."""
        try:
            status = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            status = None
        for thread in self._threads:
            thread.join(END_SECONDS)
        return {"status": status, "seconds": round(self._took, 2), **self.lines}

    def terminate(self):
        """For one that would go on."""
        self.signal(signal.SIGTERM)
        return self.wait(END_SECONDS)


class Run:
    """The two programs on one cable."""

    def __init__(self, ddp_rping, link):
        self._ddp_rping, self.link = ddp_rping, link

    def rping(self, *options):
        return Program(["rping", *map(str, options)])

    def ours(self, *options):
        return Program(self.link.inside([self._ddp_rping, *options]))

    def rping_server(self, port):
        """For any number of clients."""
        address = self.link.address6 if port == cases.RPING6 else self.link.address
        server = self.rping("-s", "-P", "-S", cases.RPING_MAX, "-a", address, "-p", port)
        server.wait_until_listening(port)
        return server

    def our_server(self, *options):
        server = self.ours("-s", "-d", *options)
        server.wait_for_line("stderr", "listening on port")
        return server

    def play(self, case, port):
        """What became of a case's programs, by side; rping's server goes on."""
        same = ("-v", "-V", "-p", port, "-C", case.count)
        if case.is_ours_client:
            address = self.link.address6 if case.is_ipv6 else self.link.address
            return {"ours": self.ours("-c", "-d", "-a", address, "-S", case.size, *same, *case.options, *PATIENCE).wait()}
        server = self.our_server(*same, *case.options, *PATIENCE)
        address = self.link.far_address6 if case.is_ipv6 else self.link.far_address
        rping = self.rping("-c", "-a", address, "-S", case.size, *same).wait()
        return {"ours": server.wait(END_SECONDS), "rping": rping}
