# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The benchmarks, in the order of the report. Each module has TITLE, QUESTION, FIGURES and measure(recorder)."""

import paper
import passthrough
import stream

BENCHES = {module.__name__: module for module in (stream, paper, passthrough)}
