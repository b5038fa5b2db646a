# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""bench/guest: the user engine's message mode against Linux's siw, in one guest of the lab."""

import dataclasses
import json
import subprocess

import machine
import ways
from figure import Figure, size_name
from recorder import Failed

TITLE = "Beside siw"
QUESTION = ("How does message mode stand beside Linux's own software iWARP, which is in the kernel? perftest over siw and ddp-perf over the user "
            "engine run the same six tests in one guest of the lab, in turns, on two processors, both spinning, without CRCs, which is how siw "
            "comes; every FPDU fits into a TCP segment. Connections go from an address of the guest to itself, over lo with the MTU of Ethernet, "
            "because siw serves the initial network namespace only: both ways have the same device, address, TCP and buffers.")
LATENCY_SIZES = [2, 64, 1024]
BANDWIDTH_SIZES = [4096, 16384, 65536, 262144, 1 << 20]
VERBS = ("send", "write", "read")
LARGE_MTU, LARGE_MTU_SIZES = 9000, [65536]
LATENCY_MESSAGES = 2000
# Many times what the socket buffers hold: a Send or Write is complete when TCP has it.
BANDWIDTH_BYTES = 24 << 20
QUICK_SHARE = 10
LAB = machine.ROOT / "lab" / "lab.py"
INSIDE = machine.ROOT / "bench" / "guest_pairs.py"
OUT = machine.ROOT / "build" / "lab" / "bench_guest" / "out"
SECONDS_A_ROUND = 600
WAYS = {"siw": ways.SIW, "ddp-perf": ways.MESSAGES}
NOTE = "Median of a message, one way (Read: the whole Read), by both programs' own count."

FIGURES = [Figure(f"{verb}-{metric}-{mtu}", f"{verb.capitalize()}, {title}, MTU {mtu}", "lines", "bytes a message", is_x_bytes=True,
                  note=NOTE if metric == "latency" else "", baseline=ways.SIW.name)
           for mtu in (1500, LARGE_MTU) for metric, title in (("latency", "latency"), ("bandwidth", "bandwidth")) for verb in VERBS
           if mtu == 1500 or metric == "bandwidth"]


@dataclasses.dataclass(frozen=True)
class Question:
    verb: str
    metric: str
    size: int
    mtu: int

    @property
    def name(self):
        return f"{self.verb} {self.metric} {size_name(self.size)}, MTU {self.mtu}"

    def for_guest(self, share):
        count = LATENCY_MESSAGES if self.metric == "latency" else max(BANDWIDTH_BYTES // self.size, QUICK_SHARE * 5)
        return {"name": self.name, "test": f"{self.verb}-{'lat' if self.metric == 'latency' else 'bw'}", "size": self.size,
                "mtu": self.mtu, "count": max(count // share, 5)}


def questions(recorder):
    for mtu, metrics in ((1500, {"latency": LATENCY_SIZES, "bandwidth": BANDWIDTH_SIZES}), (LARGE_MTU, {"bandwidth": LARGE_MTU_SIZES})):
        for metric, sizes in metrics.items():
            for verb in VERBS:
                for size in recorder.thin(sizes, 2):
                    yield Question(verb, metric, size, mtu)


def measure(recorder):
    asked = [q for q in questions(recorder) if recorder.wants(q.name)]
    if not asked:
        return
    share = QUICK_SHARE if recorder.is_quick else 1
    plan = {"rounds": recorder.rounds, "program": str(machine.BUILD / "tools" / "ddp-perf"), "cases": [q.for_guest(share) for q in asked]}
    brought = run_in_guest(plan)
    print(f"guest: Linux {brought['kernel']}, {brought['accelerator']}, {brought['processors']} processors; {brought['again']} pairs of perftest "
          "started again because they never came to their measurement", flush=True)
    for question in asked:
        found = brought["cases"][question.name]
        for problem in found["problems"]:
            recorder.problem(f"{question.name}: {problem}")
        unit, better = ("us", "lower") if question.metric == "latency" else ("MiB/s", "higher")
        runs = {way: [{"value": value} for value in found["samples"][key]] for key, way in WAYS.items()}
        recorder.record_key(f"{question.verb}-{question.metric}-{question.mtu}", question.name, question.size, unit, better, runs, "value")


def run_in_guest(plan):
    command = ["python3", "-B", str(LAB), "run", "--name", "bench_guest", "--timeout", str(SECONDS_A_ROUND * plan["rounds"]), str(INSIDE),
               json.dumps(plan)]
    (OUT / "results.json").unlink(missing_ok=True)
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"the guest ended with status {done.returncode}: {done.stderr[-2000:]}")
    return json.loads((OUT / "results.json").read_text(encoding="utf-8"))
