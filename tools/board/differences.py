# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What differs from the native column, and the checked-in list of those differences that have a reason. An unlisted
difference is a failure, and so is an entry that no longer differs: the list only shrinks."""

import dataclasses
import pathlib
import tomllib

import events

AGAIN = "starts again before"  # of a scenario after a hang or crash, which natively there was none of
LIST = pathlib.Path(__file__).resolve().parent / "differences.toml"
NOT_RUN = "not run"


class BadList(Exception):
    pass


@dataclasses.dataclass(frozen=True)
class Difference:
    suite: str
    column: str
    test: str
    natively: str
    here: str
    detail: str = ""


def compare(suite, column, native, here):
    """`native` and `here`: test -> (verdict, detail) of the same pieces."""
    found = []
    for test in dict.fromkeys((*native, *here)):
        natively = native.get(test, (NOT_RUN, ""))[0]
        verdict, detail = here.get(test, (NOT_RUN, ""))
        if AGAIN in test and verdict == events.PASS:
            continue
        if natively != events.FLAKY and verdict != natively:
            found.append(Difference(suite, column, test, natively, verdict, detail))
    return found


@dataclasses.dataclass(frozen=True)
class Reason:
    text: str
    is_rare: bool = False  # shows in some runs only: still a bug, which no run proves to be gone


def read_list(path=LIST):
    """(suite, column, test) -> Reason."""
    with open(path, "rb") as file:
        entries = tomllib.load(file).get("difference", [])
    reasons = {}
    for entry in entries:
        if set(entry) - {"sometimes"} != {"suite", "columns", "tests", "reason"}:
            raise BadList(f"{path.name}: an entry has suite, columns, tests, reason and perhaps sometimes, and nothing else: {entry}")
        for column in entry["columns"]:
            for test in entry["tests"]:
                if (key := (entry["suite"], column, test)) in reasons:
                    raise BadList(f"{path.name}: twice: {key}")
                reasons[key] = Reason(entry["reason"], entry.get("sometimes", False))
    return reasons


def judge(found, reasons, was_run):
    """(unlisted differences, entries that no longer differ). `was_run`: a key -> whether its test was looked at."""
    keys = {(each.suite, each.column, each.test) for each in found}
    unlisted = [each for each in found if (each.suite, each.column, each.test) not in reasons]
    gone = [key for key, reason in reasons.items() if not reason.is_rare and was_run(key) and key not in keys]
    return unlisted, gone
