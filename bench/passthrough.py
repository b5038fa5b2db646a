# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""bench/passthrough: what the library costs a program that has no DDP socket. Peer is the same program without it."""

import json
import os
import subprocess
import time

import machine
import pair
import ways
from figure import Figure
from recorder import Failed

TITLE = "Programs without a DDP socket"
QUESTION = "What does the loaded library cost a program that has no DDP socket?"
CALL_ROUNDS = 15
CALL_SECONDS = 0.05
LOADS = 20  # a sample
LOAD_ROUNDS = 10
RUN_SECONDS = 60
WAYS = [ways.PLAIN, ways.PRELOADED]

FIGURES = [
    Figure("calls", "Intercepted calls on other descriptors", "bars", note="CPU time of one call, by Google Benchmark."),
    Figure("process", "A process that does nothing", "bars", note="From spawn to end of /bin/true."),
    Figure("ping-pong", "System calls of a ping-pong", "bars", note="64 B over plain TCP, both sides, by strace."),
]


def measure(recorder):
    if not machine.has_product():
        recorder.problem(f"passthrough: {machine.relative(machine.LIBRARY)} or ddprun is missing: nothing to measure")
        return
    time_calls(recorder)
    time_load(recorder)
    compare_system_calls(recorder)


def time_calls(recorder):
    def sample(way):
        done = subprocess.run([machine.program("passthrough_calls"), "--benchmark_format=json",
                               f"--benchmark_min_time={CALL_SECONDS}"],
                              env=way.environment(), capture_output=True, text=True, timeout=RUN_SECONDS)
        if done.returncode != 0:
            raise Failed(done.stderr)
        return {b["name"]: b["cpu_time"] for b in json.loads(done.stdout)["benchmarks"]}

    runs = recorder.interleave("calls", WAYS, sample, 2 if recorder.is_quick else max(CALL_ROUNDS, recorder.rounds))
    for name in runs.get(ways.PLAIN, [{}])[0]:
        recorder.record_key("calls", name, name.replace("_", " "), "ns a call", "lower", runs, name)


def time_load(recorder):
    """Microseconds from spawn to end of a program that does nothing, averaged over a batch."""
    def sample(way):
        start = time.perf_counter()
        for _ in range(LOADS):
            os.waitpid(os.posix_spawn("/bin/true", ["true"], way.environment()), 0)
        return {"us": (time.perf_counter() - start) / LOADS * 1e6}

    runs = recorder.interleave("load", WAYS, sample, 2 if recorder.is_quick else max(LOAD_ROUNDS, recorder.rounds))
    recorder.record_key("process", "start and end of a process", "start and end", "us", "lower", runs, "us")


def compare_system_calls(recorder):
    sides = {way: pair.system_calls_per_message(way, "latency", ["--size=64"], pair.TWO_CPUS) for way in WAYS}
    is_same = sides[ways.PRELOADED] == sides[ways.PLAIN]
    print(f"system calls with and without the library: {'identical' if is_same else 'DIFFERENT'}: {sides[ways.PRELOADED]}")
    runs = {way: [{"calls": pair.total(counts)}] for way, counts in sides.items()}
    recorder.record_key("ping-pong", "system calls of a ping-pong, both sides", "64 B ping-pong", "calls a message", "lower", runs, "calls")
