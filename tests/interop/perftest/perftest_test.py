#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""perftest over Linux's siw against ddp-perf, each as client and as server, in one boot of the lab's guest.

    perftest_test.py DDP_PERF

Captures stay in build/lab/interop_perftest/out.
"""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.dont_write_bytecode = True
sys.path[:0] = [str(HERE.parent), str(ROOT / "lab")]

import guest
import kernel

import judge
import report

RUN_SECONDS = 400
SKIPPED = 77


def play(ddp_perf):
    """Runs everything in the guest; the folder it left its results in."""
    with guest.Guest("interop_perftest") as host:
        done = host.run(["/usr/bin/python3", "-B", HERE / "in_guest.py", ddp_perf], seconds=RUN_SECONDS)
        print((done.stdout + done.stderr).decode(errors="replace"), end="", flush=True)
        if done.status != 0:
            raise guest.GuestError(f"in_guest.py ended with status {done.status}", host.tail())
        return host.out


def main():
    options = report.parse("ddp_perf")
    try:
        out = play(pathlib.Path(options.ddp_perf).resolve())
    except kernel.KernelError as error:
        print(f"skipped: {error}")
        return SKIPPED
    except guest.GuestError as error:
        print(error)
        return 1
    brought = json.loads((out / "results.json").read_text(encoding="utf-8"))
    return report.finish(options, "InteropPerftest", judge.everything(brought, out))


if __name__ == "__main__":
    sys.exit(main())
