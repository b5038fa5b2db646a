# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The differences that known.txt names."""

import pathlib
import re

KNOWN = pathlib.Path(__file__).parent / "known.txt"


class Known:
    """One line of known.txt: columns | a call before it | plain TCP's line | the column's line | why."""

    def __init__(self, line):
        columns, before, native, other, self.why = (part.strip() for part in line.split(" | "))
        self.columns = set(columns.split(","))
        self.before, self.native, self.other = (re.compile(text) for text in (before, native, other))

    def fits(self, column, native, other):
        if column not in self.columns:
            return False
        a, b = first_difference(native, other)
        return self.native.search(a) and self.other.search(b) and any(self.before.search(line) for line in other)


def read_known():
    lines = KNOWN.read_text().splitlines()
    return [Known(line) for line in lines if line and not line.startswith("#")]


def first_difference(one, other):
    for a, b in zip(one, other):
        if a != b:
            return a, b
    longer = one if len(one) > len(other) else other
    extra = longer[min(len(one), len(other))] if len(one) != len(other) else ""
    return (extra, "(nothing)") if longer is one else ("(nothing)", extra)
