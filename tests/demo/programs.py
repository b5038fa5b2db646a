# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The demo's programs, unmodified from Debian: how each is started, run once, and its result checked."""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import subprocess

import ports

RUN_SECONDS = 120
START_SECONDS = 10
STOP_SECONDS = 10
FILE_BYTES = 64 << 20
VALUE_BYTES = 1 << 20


class ProgramError(Exception):
    """A program failed or returned wrong bytes."""


@dataclasses.dataclass
class Outcome:
    """What one run says of itself."""
    bytes_moved: int  # application bytes that a right transfer cannot do with less than
    throughput: float | None = None
    unit: str = ""


class Launcher:
    """Starts programs either as they are or under ddprun."""

    def __init__(self, prefix, env, folder):
        self._prefix, self._env, self._folder = prefix, {**os.environ, **env}, folder

    def run(self, *command, stdin=subprocess.DEVNULL, text=True):
        done = subprocess.run([*self._prefix, *command], env=self._env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=RUN_SECONDS, text=text, **({"input": stdin} if isinstance(stdin, bytes) else {"stdin": stdin}))
        if done.returncode != 0:
            raise ProgramError(f"{command[0]} ended with status {done.returncode}: {done.stdout!r} {done.stderr!r}"[:4000])
        return done.stdout

    @contextlib.contextmanager
    def serve(self, port, *command):
        log = self._folder / f"{pathlib.Path(command[0]).name}.log"
        with open(log, "ab") as output:
            server = subprocess.Popen([*self._prefix, *command], env=self._env, cwd=self._folder,
                                      stdin=subprocess.DEVNULL, stdout=output, stderr=output)
            try:
                ports.wait_until_listening(port, server, START_SECONDS)
                yield server
                if server.poll() is not None:
                    raise ProgramError(f"{command[0]} ended with status {server.returncode}; see {log}")
            finally:
                server.terminate()
                try:
                    server.wait(STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    server.kill()
                    server.wait()


@dataclasses.dataclass
class Size:
    """How much a run moves: little when every packet is captured, more when it is timed."""
    requests: int
    iperf_bytes: str
    is_captured: bool


CAPTURED = Size(requests=10_000, iperf_bytes="64M", is_captured=True)
TIMED = Size(requests=50_000, iperf_bytes="2G", is_captured=False)


class Redis:
    unit = "requests/s"

    def server(self, launcher, port, folder):
        return launcher.serve(port, "redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "",
                              "--appendonly", "no", "--dir", str(folder))


class RedisBenchmark(Redis):
    name = "redis-benchmark"
    payload = 100

    def run(self, launcher, port, size, folder):
        out = launcher.run("redis-benchmark", "-h", "127.0.0.1", "-p", str(port), "-t", "set,get", "-c", "20", "-n",
                           str(size.requests), "-d", str(self.payload), "--csv")
        rates = [float(r) for r in re.findall(r'^"(?:SET|GET)[^"]*","([\d.]+)"', out, re.MULTILINE)]
        if len(rates) != 2:
            raise ProgramError(f"redis-benchmark printed no rates: {out}")
        return Outcome(2 * size.requests * self.payload, sum(rates) / 2, self.unit)


class RedisCli(Redis):
    name = "redis-cli"

    def run(self, launcher, port, size, folder):
        value = os.urandom(VALUE_BYTES)
        cli = ("redis-cli", "-h", "127.0.0.1", "-p", str(port))
        if launcher.run(*cli, "-x", "SET", "demo", stdin=value, text=False).strip() != b"OK":
            raise ProgramError("redis-cli SET was refused")
        got = launcher.run(*cli, "GET", "demo", text=False)
        if got != value + b"\n":
            raise ProgramError("redis-cli GET returned other bytes than SET stored")
        return Outcome(2 * VALUE_BYTES)


class Iperf:
    unit = "Gb/s"
    streams = 4

    def __init__(self, is_reverse):
        self._is_reverse = is_reverse
        self.name = f"iperf3 -P {self.streams}" + (" -R" if is_reverse else "")

    def server(self, launcher, port, folder):
        return launcher.serve(port, "iperf3", "-s", "-B", "127.0.0.1", "-p", str(port))

    def run(self, launcher, port, size, folder):
        out = json.loads(launcher.run("iperf3", "-c", "127.0.0.1", "-p", str(port), "-P", str(self.streams), "-n",
                                      size.iperf_bytes, "-J", *(["-R"] if self._is_reverse else [])))
        end = out["end"]
        if len(end["streams"]) != self.streams or not end["sum_received"]["bytes"]:
            raise ProgramError("iperf3 did not run all its streams")
        return Outcome(end["sum_received"]["bytes"], end["sum_received"]["bits_per_second"] / 1e9, self.unit)


class Curl:
    name = "curl"
    unit = "MB/s"

    def server(self, launcher, port, folder):
        # Debian's own interpreter, whatever else is first in PATH.
        return launcher.serve(port, "/usr/bin/python3", "-m", "http.server", str(port), "--bind", "127.0.0.1",
                              "--directory", str(folder))

    def run(self, launcher, port, size, folder):
        served, fetched = folder / "served.bin", folder / "fetched.bin"
        if not served.exists():
            served.write_bytes(os.urandom(FILE_BYTES))
        speed = launcher.run("curl", "--silent", "--show-error", "--fail", "--output", str(fetched), "--write-out",
                             "%{speed_download}", f"http://127.0.0.1:{port}/{served.name}")
        digests = [hashlib.sha256(p.read_bytes()).hexdigest() for p in (served, fetched)]
        fetched.unlink()
        if digests[0] != digests[1]:
            raise ProgramError(f"curl fetched other bytes: sha256 {digests[1]} instead of {digests[0]}")
        return Outcome(FILE_BYTES, float(speed) / 1e6, self.unit)


PROGRAMS = [RedisBenchmark(), RedisCli(), Iperf(is_reverse=False), Iperf(is_reverse=True), Curl()]
