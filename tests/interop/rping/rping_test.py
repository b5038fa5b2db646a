#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""rdma-core's rping over Linux's siw against ddp-rping, each as client and as server, in one boot of the lab's guest.

    rping_test.py DDP_RPING

Captures and what the programs printed stay in build/lab/interop_rping/out.
"""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.dont_write_bytecode = True
sys.path[:0] = [str(HERE.parent), str(ROOT / "lab")]

import cases
import failures
import guest
import judge
import report

RUN_SECONDS = 400


def play(ddp_rping):
    """Runs everything in the guest; the folder it left its results in."""
    with guest.Guest("interop_rping") as host:
        done = host.run(["/usr/bin/python3", "-B", HERE / "in_guest.py", ddp_rping], seconds=RUN_SECONDS)
        print((done.stdout + done.stderr).decode(errors="replace"), end="", flush=True)
        if done.status != 0:
            raise guest.GuestError(f"in_guest.py ended with status {done.status}", host.tail())
        return host.out


def main():
    options = report.parse("ddp_rping")
    guest.skip_without_kernel()
    try:
        out = play(pathlib.Path(options.ddp_rping).resolve())
    except guest.GuestError as error:
        print(error)
        return 1
    brought = json.loads((out / "results.json").read_text(encoding="utf-8"))
    results = {}
    for group in cases.GROUPS:
        results |= judge.group(group, brought[group.name], str(out / f"{group.name}.pcap"))
    results |= judge.all_failures(brought[failures.NAME], str(out / f"{failures.NAME}.pcap"))
    return report.finish(options, "InteropRping", results)


if __name__ == "__main__":
    sys.exit(main())
