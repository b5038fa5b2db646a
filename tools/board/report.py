# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Draws doc/board.md from what was found. Of a suite that was not run whole here, what the page said stays."""

import re

import events

NOT_RUN = "not run"
DIFFERENCE = re.compile(r"  - `(.*)`: natively [a-z ]+, [a-z ]+ in ((?:`[^`]+`(?:, )?)+)$")
HEAD = """# The transparency board

Test suites and programs from elsewhere, run without the library and with it. Made by `./dev board` from what it found; nothing
here is written by hand. A test is compared by its name with the same test in the column `native`. Each row is of the revisions of
the library that it names; `+`: with changes that were not committed.

"""
LEGEND = """
A cell says how many tests passed; behind a stroke, how many ended otherwise than natively. `·`: makes no sense for this
suite, because both ends are one program or for the reason below.

"""


def count(tests, verdict):
    return sum(1 for found, _ in tests.values() if found == verdict)


def escape(text):
    return " ".join(text.split()).replace("|", "\\|")


def read_page(page):
    """(section, title) -> the lines that it has about the suite of that title."""
    lines, section, key = {}, "", None
    for line in page.splitlines():
        if line.startswith("## "):
            section = line[3:]
        if line.startswith("| "):
            key = ("", line.split("|")[1].strip())
        elif line.startswith("- **"):
            key = (section, line[4:].partition("**")[0])
        elif not line.startswith("  - "):
            key = None
        if key is not None:
            lines.setdefault(key, []).append(line)
    return lines


def lacking(row, pieces):
    """How many of the row's pieces were not run, in all columns together."""
    count = 0
    for cell in (cell.strip() for cell in row.split("|")[4:-2]):
        if said := re.search(rf"(\d+) pieces {NOT_RUN}", cell):
            count += int(said[1])
        elif cell != "·" and not cell[0].isdigit():
            count += pieces
    return count


class Board:
    """`found[suite name][column name]` is its Results; `differences` are all that there are, `reasons` the list, `page` what is
    to be drawn anew."""

    def __init__(self, suites, columns, found, differences, reasons, page=""):
        self.suites, self.columns, self.found = suites, columns, found
        self.differences, self.reasons = differences, reasons
        self.old = read_page(page)

    def missing(self, suite):
        """The columns in which not all of it was run. What does not start natively was run in none."""
        here = self.found[suite.name]
        return [name for name, column in self.columns.items() if not suite.dash(column) and not here[name].problem
                and self.pieces(suite, name) != set(suite.pieces)]

    def pieces(self, suite, column):
        here = self.found[suite.name]
        return set(here[column].pieces) - here["native"].not_started()

    def old_lines(self, section, suite):
        """What stays as it was, or None where the suite is drawn."""
        row = "".join(self.old.get(("", suite.title), []))
        if not row or not self.missing(suite):
            return None
        # Of a row that was not whole either, what has more of it stands.
        is_run = any(results.pieces for results in self.found[suite.name].values())
        if is_run and lacking(row, len(suite.pieces)) >= lacking(self.row(suite), len(suite.pieces)):
            return None
        return [self.with_what_came_since(suite, line) for line in self.old.get((section, suite.title), [])]

    def with_what_came_since(self, suite, line):
        """A difference that stays on the page, and that a later run of its piece did not show."""
        if not (said := DIFFERENCE.match(line)):
            return line
        test, columns = said[1], re.findall(r"`([^`]+)`", said[2])
        here = self.found[suite.name]
        differ = {(each.column, escape(each.test)) for each in self.differences if each.suite == suite.name}
        for column in columns:
            pieces = self.pieces(suite, column) & self.pieces(suite, "native")
            is_run = any(test.startswith(f"{piece}: ") for piece in pieces) or test in map(escape, here[column].tests(pieces))
            if not is_run or (column, test) in differ:
                return line
        return f"{line}; as natively in " + ", ".join(f"`{revision}`" for revision in sorted({here[column].library for column in columns}))

    def cell(self, suite, column):
        if suite.dash(column):
            return "·"
        results = self.found[suite.name][column.name]
        if results.problem:
            return results.problem.partition(":")[0]
        if not results.pieces:
            return NOT_RUN
        pieces = self.pieces(suite, column.name)
        tests = results.tests(pieces)
        differ = sum(1 for each in self.differences if (each.suite, each.column) == (suite.name, column.name))
        missing = len(set(suite.pieces) - pieces)
        return f"{count(tests, events.PASS)}" + (f" / {differ} differ" if differ else "") + (f", {missing} pieces {NOT_RUN}" if missing else "")

    def table(self):
        yield "| suite | version | tests | " + " | ".join(f"`{name}`" for name in self.columns) + " | of |"
        yield "|---" * (len(self.columns) + 4) + "|"
        for suite in self.suites.values():
            if (old := self.old_lines("", suite)) is not None:
                yield from old
                continue
            yield self.row(suite)

    def row(self, suite):
        native = self.found[suite.name]["native"]
        cells = [self.cell(suite, column) for column in self.columns.values()]
        revisions = sorted({r.library for r in self.found[suite.name].values() if r.library})
        cells.append(", ".join(f"`{revision}`" for revision in revisions) or "-")
        return f"| {suite.title} | {native.version or '-'} | {len(native.tests())} | " + " | ".join(cells) + " |"

    def causes(self):
        """One entry for each reason of each suite."""
        lines = [line for suite in self.suites.values() for line in self.causes_of(suite)]
        yield from lines or ["None."]

    def causes_of(self, suite):
        if (old := self.old_lines("Differences", suite)) is not None:
            yield from old
            return
        grouped = {}
        for each in self.differences:
            if each.suite != suite.name:
                continue
            known = self.reasons.get((each.suite, each.column, each.test))
            reason = "NOT EXPLAINED" if known is None else known.text + (" Not in every run." if known.is_rare else "")
            grouped.setdefault(reason, {}).setdefault((each.test, each.natively, each.here), []).append(each.column)
        for reason, tests in grouped.items():
            yield f"- **{suite.title}**: {escape(reason)}"
            for (test, natively, here), columns in tests.items():
                yield f"  - `{escape(test)}`: natively {natively}, {here} in {', '.join(f'`{column}`' for column in columns)}"

    def notes(self):
        for suite in self.suites.values():
            if (old := self.old_lines("Notes", suite)) is not None:
                yield from old
                continue
            native = self.found[suite.name]["native"]
            parts = []
            if problem := next((r.problem for r in self.found[suite.name].values() if r.problem), None):
                parts.append(escape(problem))
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

    def text(self, machine):
        return "\n".join(self.draw(machine)) + "\n"
