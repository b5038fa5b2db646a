# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Prints rows of text as one aligned table, the first column to the left and the others to the right."""


def render(header, rows):
    cells = [header, *rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = ["  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))) for row in cells]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])
