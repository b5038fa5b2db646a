# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Near and far: a machine that moves its CPUs about between cores has two speeds between two processes, and a median over both is
neither. Told apart by what a cache line took to the other CPU and back before each round (line_probe)."""

import dataclasses
import statistics

# Below this the slowest round and the fastest are of one mode: they differ by noise.
LEAST_RATIO = 2


@dataclasses.dataclass(frozen=True)
class Modes:
    border: float | None = None  # ns; None: there is one mode, or nobody knows

    def split(self, case, way):
        """The values of near rounds and of far ones; None unless there are both."""
        values, lines = case["samples"].get(way) or [], case.get("line_ns") or []
        if self.border is None or len(values) != len(lines):
            return None
        near, far = ([v for v, ns in zip(values, lines) if (ns < self.border) is is_near] for is_near in (True, False))
        return (near, far) if near and far else None

    def medians(self, case, way):
        parts = self.split(case, way)
        return parts and tuple(statistics.median(part) for part in parts)


def find(cases):
    """The modes of a run, from the rounds of all its cases."""
    lines = [ns for case in cases for ns in case.get("line_ns") or []]
    if not lines or max(lines) < LEAST_RATIO * min(lines):
        return Modes()
    # The widest gap, as a ratio: each mode varies little beside what lies between them.
    ordered = sorted(lines)
    below, above = max(zip(ordered, ordered[1:]), key=lambda pair: pair[1] / pair[0])
    return Modes((below * above) ** 0.5)


def describe(cases):
    """What the rounds of a run say of the machine, in a sentence; empty where nothing is known."""
    lines = [ns for case in cases for ns in case.get("line_ns") or []]
    if not lines:
        return ""
    border = find(cases).border
    if border is None:
        return f"{statistics.median(lines):.0f} ns in all {len(lines)} rounds"
    near, far = [ns for ns in lines if ns < border], [ns for ns in lines if ns >= border]
    return f"near, {statistics.median(near):.0f} ns, in {len(near)} rounds; far, {statistics.median(far):.0f} ns, in {len(far)}"
