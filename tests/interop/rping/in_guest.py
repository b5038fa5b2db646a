# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs the groups of cases.py in the lab's guest: siw at the near end of a cable, ddp-rping in a namespace at the far one.

    in_guest.py DDP_RPING

Leaves a capture a group and results.json: what every program printed and how it ended. The host judges both.
"""

import contextlib
import json
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "lab"), str(ROOT / "tools")]

import cases
import failures
import programs
import scene


def run_group(group, link, run):
    """Runs the cases one after the other, so that connections to one server are in that order in the capture."""
    with contextlib.ExitStack() as stack:
        if group.netem:
            stack.enter_context(scene.netem(link.device, *group.netem))
            stack.enter_context(scene.netem(link.far_device, *group.netem, namespace=link.namespace))
        stack.enter_context(scene.capture(link.device, scene.out() / f"{group.name}.pcap"))
        of_rping = sorted({group.port(case) for case in group.cases if case.is_ours_client})
        servers = [run.rping_server(port) for port in of_rping]
        played = []
        for case in group.cases:
            with scene.siw_parameters(**case.siw):
                played.append(run.play(case, group.port(case)))
        return {"cases": played, "servers": [server.terminate() for server in servers]}


def main():
    ddp_rping = sys.argv[1]
    results = {}
    for mtu in sorted({g.mtu for g in cases.GROUPS}):
        with scene.veth(mtu=mtu) as link, scene.siw(link.device):
            run = programs.Run(ddp_rping, link)
            for group in (g for g in cases.GROUPS if g.mtu == mtu):
                began = time.monotonic()
                results[group.name] = run_group(group, link, run)
                print(f"{group.name}: {len(group.cases)} cases in {time.monotonic() - began:.1f} s", flush=True)
            if mtu == failures.MTU:
                with scene.capture(link.device, scene.out() / f"{failures.NAME}.pcap"):
                    results[failures.NAME] = failures.run_all(run)
    (scene.out() / "results.json").write_text(json.dumps(results), encoding="utf-8")


if __name__ == "__main__":
    main()
