# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Starts programs from elsewhere as servers and clients, counts their CPU time and system calls, and ends them."""

import contextlib
import dataclasses
import os
import pathlib
import resource
import signal
import subprocess

import pair
import ports
from recorder import Failed

START_SECONDS = 15
RUN_SECONDS = 60
TICKS = os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass(frozen=True)
class Placement:
    name: str
    prefix: tuple = ()
    hogs: int = 0  # busy processes beside it


PLACEMENTS = [Placement("idle cores"), Placement("one core", ("taskset", "-c", "0")),
              Placement("beside hogs", hogs=os.cpu_count())]


@contextlib.contextmanager
def hogs(placement):
    """The busy processes of a placement."""
    busy = [subprocess.Popen(["sh", "-c", "while :; do :; done"], stdin=subprocess.DEVNULL) for _ in range(placement.hogs)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


class Server:
    """A program that listens on `port`. `prefix` stands before the way's own, for another user."""

    def __init__(self, way, placement, command, port, prefix=(), folder=None, end=signal.SIGTERM):
        self.port, self.end = port, end
        self.log = open(pathlib.Path(folder) / f"log.{port}", "w+", encoding="utf-8", errors="replace")
        self.process = subprocess.Popen([*placement.prefix, *prefix, *way.prefix, *command], env=way.environment(), cwd=folder,
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def __enter__(self):
        try:
            ports.wait_until_listening(self.port, self.process, START_SECONDS)
        except RuntimeError as error:
            self.__exit__()
            raise Failed(f"{error}: {self.output()}") from None
        return self

    def output(self):
        self.log.seek(0)
        return self.log.read()[-2000:]

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(self.end)
            try:
                self.process.wait(START_SECONDS)
            except subprocess.TimeoutExpired:
                for pid in descendants(self.process.pid)[::-1]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                self.process.wait()

    def cpu_seconds(self):
        """Of the process, its threads and descendants, those that ended and were waited for included."""
        return sum(_cpu_seconds(pid) for pid in descendants(self.process.pid))


def descendants(pid):
    found = [pid]
    for parent in found:
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{parent}/task"):
                with open(f"/proc/{parent}/task/{task}/children", encoding="ascii") as f:
                    found += map(int, f.read().split())
    return found


def _cpu_seconds(pid):
    total = 0.0
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as f:
                total += int(f.read().split()[0]) / 1e9
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            fields = f.read().rpartition(")")[2].split()
        total += (int(fields[13]) + int(fields[14])) / TICKS  # children that ended
    return total


def run_client(way, placement, command, prefix=(), cwd=None, tracer=()):
    """Its output, and the CPU time that it and its children took."""
    before = _children_seconds()
    try:
        done = subprocess.run([*placement.prefix, *tracer, *prefix, *way.prefix, *command], env=way.environment(), cwd=cwd,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=RUN_SECONDS)
    except subprocess.TimeoutExpired as expired:
        raise Failed(f"{expired}") from None
    if done.returncode != 0:
        raise Failed(f"{command[0]} ended with status {done.returncode}: {done.stdout[-500:]} {done.stderr[-1000:]}")
    return done.stdout, _children_seconds() - before


def _children_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def count_system_calls(server, folder, run):
    """System calls of both sides while run(tracer) runs the client: a total, with the client's own start in it."""
    traces = [pathlib.Path(folder) / f"strace.{side}" for side in ("server", "client")]
    for trace in traces:
        trace.unlink(missing_ok=True)
    command = ["strace", "-f", "-c", "-U", "calls,name", "-o"]
    attach = [word for pid in descendants(server.process.pid) for word in ("-p", str(pid))]
    tracer = subprocess.Popen([*command, str(traces[0]), *attach], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        if "attached" not in tracer.stderr.readline():
            raise Failed("strace could not attach to the server")
        run((*command, str(traces[1])))
    finally:
        tracer.terminate()
        tracer.communicate(timeout=START_SECONDS)
    return sum(count for trace in traces for _, count in pair.read_counts(trace))
