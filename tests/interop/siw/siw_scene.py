#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs in the lab's guest: siw_scene.py SCENARIOS GROUP=FILTER...

siw on the near end of a veth pair, our side in the namespace at its far end. Each group of scenarios leaves GROUP.xml
and, unless its name starts with `uncaptured`, GROUP.pcap in the folder that the host keeps.
"""

import contextlib
import os
import pathlib
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "lab"))

import scene


def main():
    program, *groups = sys.argv[1:]
    with scene.veth() as link, scene.siw(link.device):
        environment = {**os.environ, "INTEROP_NETNS": link.namespace, "INTEROP_SIW_ADDRESS": link.address,
                       "INTEROP_OUR_ADDRESS": link.far_address, "INTEROP_SIW_DEVICE": link.device}
        for group in groups:
            name, pattern = group.split("=", 1)
            is_captured = not name.startswith("uncaptured")
            with scene.capture(link.device, scene.out() / f"{name}.pcap") if is_captured else contextlib.nullcontext():
                subprocess.run([program, f"--gtest_filter={pattern}", "--gtest_color=no",
                                f"--gtest_output=xml:{scene.out() / name}.xml"], env=environment, check=False,
                               stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
