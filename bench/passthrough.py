# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""bench/passthrough: what the library costs a program that has no DDP socket. Peer is the same program without it."""

import contextlib
import json
import os
import pathlib
import re
import statistics
import subprocess
import tempfile
import time

import machine
import pair
import ports
import results

CALL_ROUNDS = 15
CALL_SECONDS = 0.05
LOADS = 200
LOAD_BATCHES = 10
REDIS_ROUNDS = 10
REDIS_REQUESTS = 50_000
START_SECONDS = 10
RUN_SECONDS = 60
WAYS = [pair.PRELOADED, pair.PLAIN]


def measure(args):
    if not machine.has_product():
        print(f"{machine.relative(machine.LIBRARY)} or ddprun is missing: nothing to measure")
        return [], {}
    samples = {}
    found = [*time_calls(samples), *time_load(samples), *compare_system_calls(args, samples), *time_redis(samples)]
    return found, samples


def environment(way):
    return {**os.environ, **dict(way.env)}


def interleave(rounds, sample):
    """Alternates both ways, the other one first each time."""
    runs = {way: [] for way in WAYS}
    for number in range(rounds):
        for way in WAYS if number % 2 else WAYS[::-1]:
            runs[way].append(sample(way))
    return runs


def time_calls(samples):
    def sample(way):
        done = subprocess.run([str(machine.CALLS), "--benchmark_format=json", f"--benchmark_min_time={CALL_SECONDS}"],
                              env=environment(way), capture_output=True, text=True, check=True, timeout=RUN_SECONDS)
        return {b["name"]: b["cpu_time"] for b in json.loads(done.stdout)["benchmarks"]}

    runs = interleave(CALL_ROUNDS, sample)
    differences = []
    for name in runs[pair.PLAIN][0]:
        ours, peer = ([r[name] for r in runs[way]] for way in WAYS)
        samples[name] = {"ours": ours, "peer": peer}
        differences.append(statistics.median(ours) - statistics.median(peer))
        yield results.compare("passthrough", name, "ns a call", ours, peer, "without the library", "lower")
    added = statistics.median(differences)
    samples["added ns a call"] = differences
    print(f"added by the library, median over the calls: {added:.2f} ns a call "
          f"(by call: {', '.join(f'{d:.2f}' for d in differences)})")


def time_load(samples):
    """Microseconds from spawn to end of a program that does nothing, averaged over a batch."""
    def sample(way):
        start = time.perf_counter()
        for _ in range(LOADS // LOAD_BATCHES):
            os.waitpid(os.posix_spawn("/bin/true", ["true"], environment(way)), 0)
        return (time.perf_counter() - start) / (LOADS // LOAD_BATCHES) * 1e6

    runs = interleave(LOAD_BATCHES, sample)
    ours, peer = runs[pair.PRELOADED], runs[pair.PLAIN]
    samples["start and end of a process"] = {"ours": ours, "peer": peer}
    print(f"loading the library: {statistics.median(ours) - statistics.median(peer):.0f} us")
    yield results.compare("passthrough", "start and end of a process", "us", ours, peer, "without the library", "lower")


def compare_system_calls(args, samples):
    with tempfile.TemporaryDirectory() as folder:
        options = ["--size=64"]
        counts = {w: pair.system_calls_per_message(w, "latency", options, not args.no_pin, pathlib.Path(folder))
                  for w in WAYS}
    samples["system calls a message"] = {w.name: c for w, c in counts.items()}
    is_same = counts[pair.PRELOADED] == counts[pair.PLAIN]
    print(f"system calls with and without the library: {'identical' if is_same else 'DIFFERENT'}: "
          f"{counts[pair.PRELOADED]} {'' if is_same else counts[pair.PLAIN]}")
    ours, peer = ([sum(sum(side.values()) for side in counts[w])] for w in WAYS)
    yield results.compare("passthrough", "system calls of a ping-pong, both sides", "calls a message", ours, peer,
                          "without the library", "lower")


@contextlib.contextmanager
def redis_server(way, port, folder):
    server = subprocess.Popen(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder],
                              env=environment(way), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)
    try:
        ports.wait_until_listening(port, server, START_SECONDS)
        yield
    finally:
        server.terminate()
        server.wait(START_SECONDS)


def time_redis(samples):
    with tempfile.TemporaryDirectory() as folder:
        def sample(way):
            port = ports.free_port()
            with redis_server(way, port, folder):
                done = subprocess.run(["redis-benchmark", "-p", str(port), "-t", "get", "-n", str(REDIS_REQUESTS), "--csv"],
                                      env=environment(way), capture_output=True, text=True, check=True, timeout=RUN_SECONDS)
            return float(re.search(r'"GET","([\d.]+)"', done.stdout)[1])

        runs = interleave(REDIS_ROUNDS, sample)
    ours, peer = runs[pair.PRELOADED], runs[pair.PLAIN]
    samples["redis-benchmark GET"] = {"ours": ours, "peer": peer}
    intervals = [results.confidence_95(s) for s in (ours, peer)]
    overlap = intervals[0][0] <= intervals[1][1] and intervals[1][0] <= intervals[0][1]
    print("redis-benchmark GET, 95 % confidence: with {:.0f}..{:.0f}, without {:.0f}..{:.0f} requests/s: {}".format(
        *intervals[0], *intervals[1], "they overlap" if overlap else "they DO NOT overlap"))
    yield results.compare("passthrough", "redis-benchmark GET", "requests/s", ours, peer, "without the library", "higher")
