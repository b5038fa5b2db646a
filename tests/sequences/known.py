# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The differences that known.txt names."""

import pathlib
import re

KNOWN = pathlib.Path(__file__).parent / "known.txt"


class Known:
    """One line of known.txt: columns | calls, in this order, in the column's log, with .. between them | plain TCP's line | the column's line | why."""

    def __init__(self, line):
        columns, before, native, other, self.why = (part.strip() for part in line.split(" | "))
        self.columns = set(columns.split(","))
        self.before = [re.compile(text.strip()) for text in before.split(" .. ")]
        self.native, self.other = re.compile(native), re.compile(other)

    def fits(self, column, native, other):
        if column not in self.columns:
            return False
        a, b = first_difference(native, other)
        if not self.native.search(a) or not self.other.search(b):
            return False
        left = iter(other)
        return all(any(text.search(line) for line in left) for text in self.before)


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
