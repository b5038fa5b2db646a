# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""bench/stream: the user engine against plain TCP, one unmodified program, rounds interleaved."""

import dataclasses
import pathlib
import statistics
import tempfile

import machine
import pair
import results

LATENCY_SIZES = [1, 64, 256, 1024, 4096, 16384, 65536]
BANDWIDTH_SIZES = [64, 512, 4096, 65536, 1 << 20, 4 << 20]
# From this size on the price of the CRC shows, and is measured by itself.
CRC_FROM = 65536
# What is also measured under this machine's own congestion control.
DEFAULT_CC_CASES = {("latency", 64), ("bandwidth", 65536), ("bandwidth", 1 << 20)}
TRACED = [("latency", 64), ("latency", 65536), ("bandwidth", 64), ("bandwidth", 65536), ("bandwidth", 1 << 20)]
IDLE_CONNECTIONS = 500


@dataclasses.dataclass(frozen=True)
class Case:
    what: str
    size: int
    is_spinning: bool
    cc: str

    @property
    def name(self):
        return f"{self.what} {size_name(self.size)} {'spinning' if self.is_spinning else 'blocking'} {self.cc}"

    @property
    def options(self):
        return [f"--size={self.size}", f"--cc={self.cc}", *(["--spin"] if self.is_spinning else [])]

    @property
    def ways(self):
        return [pair.PLAIN, pair.DDP] + ([pair.PLAIN_CRC, pair.DDP_NO_CRC] if self.size >= CRC_FROM else [])


def size_name(size):
    for unit, name in ((1 << 20, "MB"), (1 << 10, "KB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def all_cases():
    for cc in machine.congestion_controls():
        for what, sizes in (("latency", LATENCY_SIZES), ("bandwidth", BANDWIDTH_SIZES)):
            for size in sizes:
                for is_spinning in (False, True):
                    if cc == "cubic" or ((what, size) in DEFAULT_CC_CASES and not is_spinning):
                        yield Case(what, size, is_spinning, cc)


def measure(args):
    cases = [c for c in all_cases() if args.only in c.name]
    has_ddp = machine.has_product()
    if not has_ddp:
        print(f"{machine.relative(machine.LIBRARY)} or ddprun is missing: plain TCP only, nothing to compare")
    found, samples = [], {}
    for case in cases:
        ways = [w for w in case.ways if has_ddp or not w.prefix]
        runs = run_rounds(case, ways, args)
        samples[case.name] = {way.name: rows for way, rows in runs.items()}
        print(describe(case, runs), flush=True)
        if has_ddp:
            found += judge(case, runs)
    if has_ddp and not args.only:
        found += count_system_calls(args, samples)
        found += weigh_idle_connections(args, samples)
    return found, samples


def run_rounds(case, ways, args):
    runs = {way: [] for way in ways}
    options = [*case.options, f"--seconds={args.seconds}"]
    for number in range(args.rounds):
        # Another way comes first in each round, so that none is always the one after the slow one.
        turn = number % len(ways)
        for way in ways[turn:] + ways[:turn]:
            runs[way].append(pair.run(way, case.what, options, not args.no_pin))
    return runs


def describe(case, runs):
    key = "p50_us" if case.what == "latency" else "gbit_s"
    parts = []
    for way, rows in runs.items():
        values = [r[key] for r in rows]
        parts.append(f"{way.name} {statistics.median(values):.4g} ({results.spread(values)})")
    return f"{case.name}, {'us' if case.what == 'latency' else 'Gb/s'}: " + "; ".join(parts)


def column(rows, key):
    return [r[key] for r in rows]


def judge(case, runs):
    if case.what == "latency":
        metrics = [("", "us one way, median", "p50_us", "lower"), (" p99", "us one way, 99 %", "p99_us", "lower")]
    else:
        metrics = [("", "Gb/s", "gbit_s", "higher")]
    pairs = [(pair.DDP, pair.PLAIN)]
    if case.size >= CRC_FROM:
        pairs += [(pair.DDP, pair.PLAIN_CRC), (pair.DDP_NO_CRC, pair.PLAIN)]
    for ours, peer in pairs:
        suffix = "" if ours == pair.DDP else f" ({ours.name})"
        for extra, unit, key, better in metrics:
            yield results.compare("stream", case.name + extra + suffix, unit, column(runs[ours], key),
                                  column(runs[peer], key), peer.name, better)
    cpu = {w: [r["client_cpu_us"] + r["server_cpu_us"] for r in runs[w]] for w in (pair.DDP, pair.PLAIN)}
    yield results.compare("stream", case.name + " CPU", "us a message, both sides", cpu[pair.DDP], cpu[pair.PLAIN],
                          pair.PLAIN.name, "lower")


def count_system_calls(args, samples):
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for what, size in TRACED:
            case = Case(what, size, False, "cubic")
            counts = {w: pair.system_calls_per_message(w, what, case.options, not args.no_pin, pathlib.Path(folder))
                      for w in (pair.PLAIN, pair.DDP)}
            samples[case.name + " system calls"] = {w.name: c for w, c in counts.items()}
            totals = {w: [sum(side.values()) for side in sides] for w, sides in counts.items()}
            for i, side in enumerate(("receiver", "sender") if what == "bandwidth" else ("server", "client")):
                found.append(results.compare("stream", f"{case.name} system calls, {side}", "calls a message",
                                             [totals[pair.DDP][i]], [totals[pair.PLAIN][i]], pair.PLAIN.name, "lower"))
    return found


def weigh_idle_connections(args, samples):
    rows = {w: [pair.run(w, "idle", [f"--count={IDLE_CONNECTIONS}"], not args.no_pin) for _ in range(args.rounds)]
            for w in (pair.PLAIN, pair.DDP)}
    samples["idle connection"] = {w.name: r for w, r in rows.items()}
    return [results.compare("stream", f"idle connection, memory of the {side}", "bytes, private",
                            column(rows[pair.DDP], f"{side}_bytes"), column(rows[pair.PLAIN], f"{side}_bytes"),
                            pair.PLAIN.name, "lower") for side in ("client", "server")]
