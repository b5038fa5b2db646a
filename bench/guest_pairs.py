#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs in the lab's guest, for guest.py: pairs of perftest over siw and of ddp-perf, in rounds, in turns.

Argument: {"rounds", "program", "cases": [{"name", "test", "size", "mtu", "count"}]} as JSON. Leaves results.json.
"""

import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "lab"), str(ROOT / "tools")]

import ports
import scene

PORT = 18515
START_SECONDS, RUN_SECONDS, END_SECONDS = 20, 60, 10
SERVER_CPU, CLIENT_CPU = "0", "1"
# perftest without its peak rate, for which it compares every message with every other.
PERFTEST_WITHOUT_PEAK = ["-N"]
# bytes, iterations, and then the columns of ib_*_lat (min, max, typical) or ib_*_bw (peak, average).
ROW = re.compile(r"^\s*(\d+)\s+(\d+)\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)", re.MULTILINE)
LATENCY_COLUMN, BANDWIDTH_COLUMN = 4, 3
STARTS = 5


class NotMeasured(Exception):
    """perftest over siw did not come to its measurement: its client came while its server did not listen, between its two
    connections, or siw overlooked the first message (doc/interop.md) and both wait for ever."""


def command(way, program, case):
    is_latency = case["test"].endswith("lat")
    shared = ["-n", case["count"], "-s", case["size"], "-p", PORT]
    if way == "siw":
        peak = [] if is_latency else PERFTEST_WITHOUT_PEAK
        own = [f"ib_{case['test'].replace('-', '_')}", "-R", "-F", *peak]
    else:
        own = [program, case["test"], "--no-crc", "--json"]
    return [str(word) for word in own + shared]


def read(way, case, text):
    is_latency = case["test"].endswith("lat")
    if way == "siw":
        [row] = ROW.findall(text)
        return float(row[LATENCY_COLUMN if is_latency else BANDWIDTH_COLUMN])
    return json.loads(text)["t_typical_us" if is_latency else "mib_per_s"]


def run_pair(way, program, case, address):
    words = command(way, program, case)
    with tempfile.TemporaryFile("w+") as said:
        server = subprocess.Popen(["taskset", "-c", SERVER_CPU, *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said)
        try:
            ports.wait_until_listening(PORT, server, START_SECONDS)
            client = run_client(["taskset", "-c", CLIENT_CPU, *words, address], way)
            if client.returncode != 0:
                if way == "siw" and "Connection refused" in client.stderr:
                    raise NotMeasured
                raise RuntimeError(f"{words} ended with {client.returncode}: {client.stderr[-500:]}")
            if server.wait(END_SECONDS) != 0:
                said.seek(0)
                raise RuntimeError(f"the server of {words} ended with {server.returncode}: {said.read()[-500:]}")
            return read(way, case, client.stdout)
        finally:
            server.kill()
            server.wait()


def run_client(words, way):
    try:
        return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        if way == "siw":
            raise NotMeasured from None
        raise


def wait_until_free():
    scene.wait_until(lambda: ports.LISTEN not in ports.states(PORT), f"port {PORT} is free")


def measure(plan, address, mtu, results):
    for case in (c for c in plan["cases"] if c["mtu"] == mtu):
        found = {"samples": {"siw": [], "ddp-perf": []}, "problems": []}
        for number in range(plan["rounds"]):
            for way in ("siw", "ddp-perf") if number % 2 else ("ddp-perf", "siw"):
                try:
                    found["samples"][way].append(sample(way, plan["program"], case, address, results))
                except (RuntimeError, subprocess.TimeoutExpired, scene.SceneError, ValueError) as error:
                    found["problems"].append(f"{way}: {error}")
        results["cases"][case["name"]] = found
        print(case["name"], json.dumps(found["samples"]), flush=True)


def sample(way, program, case, address, results):
    for _ in range(STARTS):
        wait_until_free()
        try:
            return run_pair(way, program, case, address)
        except NotMeasured:
            results["again"] += 1
    raise RuntimeError(f"perftest did not come to its measurement {STARTS} times")


def accelerator():
    text = pathlib.Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    return "emulated by QEMU (TCG)" if "QEMU TCG" in text else "under KVM"


def main():
    plan = json.loads(sys.argv[1])
    results = {"kernel": platform.release(), "accelerator": accelerator(), "processors": os.cpu_count(), "again": 0, "cases": {}}
    with scene.veth() as link, scene.siw(link.device):
        # A connection from an address of the guest to itself goes over lo.
        for mtu in sorted({case["mtu"] for case in plan["cases"]}):
            scene.step("ip", "link", "set", "lo", "mtu", mtu)
            measure(plan, link.address, mtu, results)
    (scene.out() / "results.json").write_text(json.dumps(results), encoding="utf-8")


if __name__ == "__main__":
    main()
