# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a benchmark says of each figure that the report draws from its cases."""

import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class Published:
    """Numbers of a publication, as its text gives them."""
    name: str
    points: tuple  # of (x, y)
    is_level: bool = False  # one value for every x, drawn as a line


@dataclasses.dataclass(frozen=True)
class Figure:
    key: str
    title: str
    kind: str  # lines: values over a number; bars: times the baseline, a bar a case; table: the numbers alone
    x_label: str = ""
    is_x_bytes: bool = False
    is_x_log: bool = True
    note: str = ""  # what is fixed, and where published numbers come from
    baseline: str = "plain TCP"
    published: tuple = ()


def size_name(size):
    for unit, name in ((1 << 20, "MB"), (1 << 10, "KB")):
        if size >= unit and size * 4 % unit == 0:
            return f"{size / unit:.4g} {name}"
    return f"{size:.4g} B"


def number(value):
    """Three digits that count, without an exponent."""
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    for least, size, suffix in ((9, 1e9, " G"), (6, 1e6, " M"), (4, 1e3, " k")):
        if magnitude >= least:
            return f"{_plain(value / size)}{suffix}"
    return _plain(value)


def tick(value):
    """A round number as short as it can be."""
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{suffix}"
    return f"{value:.6f}".rstrip("0").rstrip(".")


def _plain(value):
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(digits, 5)}f}"


def speed(case, way, baseline, median):
    """How many times as fast (or as little) as the baseline; above 1 is better. None without both."""
    ours, peer = median(case, way), median(case, baseline)
    if not ours or not peer:
        return None
    return peer / ours if case["better"] == "lower" else ours / peer
