#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Unmodified programs talk DDP on loopback, and Wireshark checks every frame of it.

Each program runs once under ddprun with the user engine while its port is captured, then several times with nobody
watching, by turns over plain TCP, with the user engine, and as ddprun does it if not told otherwise: in shared memory,
where no capture could see the bytes. Exits 1 unless every connection was DDP, every byte right and no frame malformed.
"""

import argparse
import dataclasses
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.append(str(ROOT / "tools"))
sys.path.append(str(ROOT / "tests" / "interop"))

import capture
import decode
import ports
import programs
import table

OUT = ROOT / "build" / "demo"
DDPRUN = ROOT / "build" / "shim" / "ddprun"
LIBRARY = ROOT / "build" / "shim" / "libddpsock.so"
HEADER = ["program", "connections", "bytes", "FPDUs", "CRC checked", "malformed", "plain TCP", "user engine", "shared memory"]


@dataclasses.dataclass
class Row:
    name: str
    decoded: decode.Decoded | None = None
    complaints: list = dataclasses.field(default_factory=list)
    plain: list = dataclasses.field(default_factory=list)
    user: list = dataclasses.field(default_factory=list)
    auto: list = dataclasses.field(default_factory=list)
    unit: str = ""

    def cells(self):
        d = self.decoded
        seen = ["-"] * 5 if d is None else [f"{len(d.connections)}", f"{d.payload_bytes:,}", f"{d.fpdus:,}",
                                            f"{d.crc_good:,}", f"{sum(d.malformed.values())}"]
        return [self.name, *seen, *(throughput(samples, self.unit) for samples in (self.plain, self.user, self.auto))]


def throughput(samples, unit):
    if not samples:
        return "-"
    middle = statistics.median(samples)
    return f"{middle:,.{0 if middle >= 1000 else 1}f} {unit}"


def plain_launcher():
    return programs.Launcher([], {}, OUT)


def log_of(name):
    return OUT / f"{file_name(name)}.ddpsock.log"


def ddp_launcher(name, engine, **env):
    command = [str(DDPRUN), "--require", "--engine", engine, "--"]
    log = log_of(name)
    log.unlink(missing_ok=True)
    return programs.Launcher(command, {"DDPSOCK_LOG": "info", "DDPSOCK_LOG_FILE": str(log), **env}, OUT)


def file_name(name):
    return name.replace(" ", "")


def judge(decoded, outcome):
    """What is wrong with a captured run, one line each."""
    d = decoded
    plain = sum(not c.is_ddp for c in d.connections)
    if plain:
        yield f"{plain} of {len(d.connections)} connections were not DDP"
    for number, c in enumerate(d.connections):
        if c.is_ddp and not c.is_accounted:
            yield f"connection {number}: Wireshark did not decode every byte of it: {c}"
    terminates = sum(c.terminates for c in d.connections)
    if terminates:
        yield f"{terminates} Terminate messages"
    if not d.connections:
        yield "no connection was captured"
    if d.crc_good != d.fpdus:
        yield f"{d.crc_good} of {d.fpdus} CRCs good, {d.crc_bad} bad, {d.crc_unchecked} not used"
    for what, count in d.malformed.items():
        yield f"{count} x {what}"
    if d.payload_bytes < outcome.bytes_moved:
        yield f"the frames carried {d.payload_bytes} bytes, the program moved {outcome.bytes_moved}"


def capture_run(program, row):
    # Wireshark decodes FPDUs only once it has seen the Reply, so the initiator waits for it here.
    launcher = ddp_launcher(program.name, "user", DDPSOCK_START="strict")
    path, port = str(OUT / f"{file_name(program.name)}.pcap"), ports.free_port()
    with program.server(launcher, port, OUT):
        with capture.Capture(path, port):
            outcome = program.run(launcher, port, programs.CAPTURED, OUT)
    row.decoded = decode.decode(path, port)
    row.complaints += judge(row.decoded, outcome)


def time_runs(program, row, rounds, is_with_ddp):
    ways = [(plain_launcher(), row.plain)]
    if is_with_ddp:
        ways.append((ddp_launcher(program.name + ".user", "user"), row.user))
        ways.append((ddp_launcher(program.name + ".auto", "auto"), row.auto))
    for launcher, samples in ways * rounds:
        port = ports.free_port()
        with program.server(launcher, port, OUT):
            outcome = program.run(launcher, port, programs.TIMED, OUT)
        if outcome.throughput is not None:
            samples.append(outcome.throughput)
            row.unit = outcome.unit
    if is_with_ddp:
        row.complaints += judge_log(program.name + ".user", "engine=user")
        row.complaints += judge_log(program.name + ".auto", "engine=shm")


def judge_log(name, engine):
    """Which connections were not what they should be."""
    lines = log_of(name).read_text().splitlines()
    if not lines:
        yield f"{name}: no connection was logged"
    for line in lines:
        if "mode=" in line and engine not in line:
            yield f"{name}: {line}"


def run_program(program, rounds, is_plain_only):
    row = Row(program.name)
    print(f"{program.name} ...", file=sys.stderr, flush=True)
    try:
        if not is_plain_only:
            capture_run(program, row)
        time_runs(program, row, rounds, not is_plain_only)
    except (programs.ProgramError, capture.CaptureError, RuntimeError, OSError, ValueError,
            subprocess.TimeoutExpired) as error:
        row.complaints.append(f"{type(error).__name__}: {error}")
    return row


def main():
    parser = argparse.ArgumentParser(prog="./dev demo", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="timed runs of each program each way (default 3)")
    parser.add_argument("--plain-only", action="store_true", help="only time the programs over plain TCP")
    parser.add_argument("program", nargs="*", help="run only the programs whose name starts so")
    args = parser.parse_args()
    for product in (DDPRUN, LIBRARY):
        if not args.plain_only and not product.exists():
            sys.exit(f"{product.relative_to(ROOT)} is missing; run ./dev build")
    OUT.mkdir(parents=True, exist_ok=True)

    chosen = [p for p in programs.PROGRAMS if not args.program or p.name.startswith(tuple(args.program))]
    if not chosen:
        sys.exit(f"no such program; there are: {', '.join(p.name for p in programs.PROGRAMS)}")
    rows = [run_program(p, args.rounds, args.plain_only) for p in chosen]
    print(table.render(HEADER, [r.cells() for r in rows]))
    print(f"\nThroughput: medians of {args.rounds} interleaved runs each way, not captured. Captures and logs: build/demo.")
    complaints = [f"{r.name}: {c}" for r in rows for c in r.complaints]
    if complaints:
        print("\nFAILED\n" + "\n".join(complaints))
        return 1
    if not args.plain_only:
        print("Every connection was DDP, every byte right, every CRC good, no frame malformed.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
