# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The benchmarks, in the order of the report. Each module has TITLE, QUESTION, FIGURES and measure(recorder)."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "tools"))

import connections
import guest
import hosts
import iperf
import message
import nginx
import onesided
import paper
import passthrough
import peers
import postgres
import redis
import ripc
import short
import steps
import stream

BENCHES = {module.__name__: module for module in (redis, stream, message, onesided, steps, peers, paper, ripc, iperf, nginx, postgres, connections, short, hosts, guest, passthrough)}
