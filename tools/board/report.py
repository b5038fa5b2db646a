# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Draws doc/board.md from what was found."""

import events

HEAD = """# The transparency board

Test suites and programs from elsewhere, run without the library and with it. Made by `./dev board` from what it found; nothing
here is written by hand. A test is compared by its name with the same test in the column `native`.

"""
LEGEND = """
A cell says how many tests passed; behind a stroke, how many ended otherwise than natively. `·`: makes no sense for this
suite, because both ends are one program or for the reason below.

"""


def count(tests, verdict):
    return sum(1 for found, _ in tests.values() if found == verdict)


def escape(text):
    return " ".join(text.split()).replace("|", "\\|")


class Board:
    """`found[suite name][column name]` is its Results; `differences` are all that there are, `reasons` the list."""

    def __init__(self, suites, columns, found, differences, reasons):
        self.suites, self.columns, self.found = suites, columns, found
        self.differences, self.reasons = differences, reasons

    def cell(self, suite, column):
        if suite.dash(column):
            return "·"
        results = self.found[suite.name][column.name]
        if results.problem:
            return "could not be installed"
        if not results.pieces:
            return "not run"
        tests = results.tests()
        differ = sum(1 for each in self.differences if (each.suite, each.column) == (suite.name, column.name))
        missing = len(set(suite.pieces) - set(results.pieces))
        return f"{count(tests, events.PASS)}" + (f" / {differ} differ" if differ else "") + (f", {missing} pieces not run" if missing else "")

    def table(self):
        yield "| suite | version | tests | " + " | ".join(f"`{name}`" for name in self.columns) + " |"
        yield "|---" * (len(self.columns) + 3) + "|"
        for suite in self.suites.values():
            native = self.found[suite.name]["native"]
            cells = [self.cell(suite, column) for column in self.columns.values()]
            yield f"| {suite.title} | {native.version or '-'} | {len(native.tests())} | " + " | ".join(cells) + " |"

    def causes(self):
        """One entry for each reason of each suite."""
        grouped = {}
        for each in self.differences:
            known = self.reasons.get((each.suite, each.column, each.test))
            reason = "NOT EXPLAINED" if known is None else known.text + (" Not in every run." if known.is_rare else "")
            grouped.setdefault((each.suite, reason), {}).setdefault((each.test, each.natively, each.here), []).append(each.column)
        for (suite, reason), tests in grouped.items():
            yield f"- **{self.suites[suite].title}**: {escape(reason)}"
            for (test, natively, here), columns in tests.items():
                yield f"  - `{escape(test)}`: natively {natively}, {here} in {', '.join(f'`{column}`' for column in columns)}"
        if not grouped:
            yield "None."

    def notes(self):
        for suite in self.suites.values():
            native = self.found[suite.name]["native"]
            parts = []
            if problem := next((r.problem for r in self.found[suite.name].values() if r.problem), None):
                parts.append(f"could not be installed: {escape(problem)}")
            if suite.leave_out:
                parts.append(f"without {', '.join(f'`{pattern}`' for pattern in suite.leave_out)}: {suite.leave_out_why}")
            parts += [f"not in `{column}`: {why}" for column, why in suite.not_in.items()]
            for verdict in (events.FAIL, events.HANG, events.CRASH, events.FLAKY):
                names = [test for test, (found, _) in native.tests().items() if found == verdict]
                if names:
                    parts.append(f"natively {verdict}: " + ", ".join(f"`{escape(name)}`" for name in sorted(names)))
            if skipped := count(native.tests(), events.SKIP):
                parts.append(f"{skipped} skip themselves natively")
            if parts:
                yield f"- **{suite.title}**: " + "; ".join(parts) + "."

    def draw(self, machine):
        yield HEAD.rstrip("\n")
        yield ""
        yield "| column | is |"
        yield "|---|---|"
        for column in self.columns.values():
            yield f"| `{column.name}` | {column.what} |"
        yield ""
        yield machine
        yield ""
        yield from self.table()
        yield LEGEND.rstrip("\n")
        yield ""
        yield "## Differences"
        yield ""
        yield from self.causes()
        yield ""
        yield "## Notes"
        yield ""
        yield from self.notes()
        revisions = sorted({r.library for by_column in self.found.values() for r in by_column.values() if r.library})
        yield ""
        yield "The library's revisions that ran: " + ", ".join(f"`{revision}`" for revision in revisions) + "."

    def text(self, machine):
        return "\n".join(self.draw(machine)) + "\n"
