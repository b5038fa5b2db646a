# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Near and far: a machine that moves its CPUs about between cores has two speeds between two processes, and a median over both is
neither. Told apart by what a cache line took to the other CPU and back before each round (line_probe)."""

import dataclasses
import statistics

# Between the slowest round of one mode and the fastest of the other lies more than this; what lies closer is noise.
LEAST_GAP = 2


def _lines(cases):
    return [ns for case in cases for ns in case.get("line_ns") or [] if ns is not None]


@dataclasses.dataclass(frozen=True)
class Modes:
    border: float | None = None  # ns; None: there is one mode, or nobody knows

    def split(self, case, way):
        """The values of near rounds and of far ones; None unless there are both."""
        values, lines = case["samples"].get(way) or [], case.get("line_ns") or []
        if self.border is None or len(values) != len(lines):
            return None
        known = [(v, ns) for v, ns in zip(values, lines) if ns is not None]
        near, far = ([v for v, ns in known if (ns < self.border) is is_near] for is_near in (True, False))
        return (near, far) if near and far else None

    def medians(self, case, way):
        parts = self.split(case, way)
        return parts and tuple(statistics.median(part) for part in parts)


def find(cases):
    """The modes of a run, from the rounds of all its cases."""
    ordered = sorted(_lines(cases))
    gaps = [(above / below, (below * above) ** 0.5) for below, above in zip(ordered, ordered[1:])]
    widest, border = max(gaps, default=(1, None))
    return Modes(border) if widest > LEAST_GAP else Modes()


def describe(cases):
    """What the rounds of a run say of the machine; empty where nothing is known."""
    lines = _lines(cases)
    if not lines:
        return ""
    border = find(cases).border
    if border is None:
        return f"{statistics.median(lines):.0f} ns"
    near, far = [ns for ns in lines if ns < border], [ns for ns in lines if ns >= border]
    return f"near, {statistics.median(near):.0f} ns, in {100 * len(near) / len(lines):.0f} % of the rounds; far, {statistics.median(far):.0f} ns"
