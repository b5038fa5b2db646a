# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""bench/steps: what a small message executes, which does not depend on the neighbours as times do."""

import json
import subprocess

import machine
import ways
from figure import Figure
from recorder import Failed

TITLE = "Instructions of a message"
QUESTION = ("How many instructions does a message of 8 bytes execute in user space, at both ends together, and how many of them are locked? Stepped "
            "one by one, in one process that has both ends; the kernel's own are not counted.")
RUN_SECONDS = 120
ALONE = "In one process, whose streams ring and take a bell for each message: two system calls that two processes which spin do without."
FIGURES = [Figure("instructions", "Instructions, both ends", "table", note=ALONE),
           Figure("locked", "Locked instructions, both ends", "table", note=ALONE)]
WHAT = {"send": "Send, polled for, received, posted again", "read": "Read of memory from ddp_alloc, to its completion",
        "stream": "send() and recv() of a byte stream"}


def measure(recorder):
    for what, name in WHAT.items():
        if not recorder.wants(name):
            continue
        compared = [ways.PLAIN, *ways.engines()] if what == "stream" else ways.messages()
        if what == "read":
            compared = [way for way in compared if way is ways.MESSAGES_SHM]
        runs = recorder.interleave(name, compared, lambda way, what=what: count(way, what), 2)
        for figure in ("instructions", "locked"):
            recorder.record_key(figure, name if figure == "instructions" else f"{name}, {figure}", name, figure, "lower", runs, figure)


def count(way, what):
    # The engine of messages is told to ddprun here: the program has one line of arguments.
    prefix = [*way.prefix[:-1], *way.options, "--"] if way.prefix else []
    done = subprocess.run([*prefix, machine.program("steps"), what, "8"], env=way.environment(), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    if done.returncode != 0:
        raise Failed(done.stderr.strip() or f"status {done.returncode}")
    return json.loads(done.stdout)
