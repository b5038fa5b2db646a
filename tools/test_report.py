#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Reads meson's test logs of one or more build folders and prints the verdict.

A GoogleTest program counts by its cases, any other test as one. A case that ran in several builds counts once: failed
if it failed anywhere, else passed if it passed anywhere, else skipped. Failures come with their output and skips with
their reason; the last line is `N passed, N failed, N skipped`. Exits 1 on a failure or if nothing ran.
"""

import dataclasses
import json
import pathlib
import sys
import xml.etree.ElementTree as ET

OUTPUT_LINES = 120


@dataclasses.dataclass
class Case:
    name: str
    verdict: str  # passed, failed, skipped
    detail: str = ""


def tail(text):
    lines = (text or "").strip().splitlines()
    cut = len(lines) - OUTPUT_LINES
    return "\n".join(([f"... {cut} lines before"] if cut > 0 else []) + lines[-OUTPUT_LINES:])


def skip_reason(testcase):
    skipped = testcase.find("skipped")
    if skipped is None and testcase.get("result") != "skipped":
        return None
    text = "" if skipped is None else (skipped.text or skipped.get("message") or "")
    # GoogleTest writes the place first, then the message.
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return " ".join(lines[1:] if len(lines) > 1 else lines) or "no reason given"


def gtest_cases(xml_path, test):
    for testcase in ET.parse(xml_path).getroot().iter("testcase"):
        if testcase.get("status") == "notrun":
            continue
        name = f"{test}: {testcase.get('classname')}.{testcase.get('name')}"
        failures = [f.text or f.get("message") or "" for f in testcase.iter("failure")]
        reason = skip_reason(testcase)
        if failures:
            yield Case(name, "failed", tail("\n".join(failures)))
        elif reason is not None:
            yield Case(name, "skipped", reason)
        else:
            yield Case(name, "passed")


def plain_case(entry, test):
    output = tail(entry.get("stdout", "") + "\n" + entry.get("stderr", ""))
    if entry["result"] in ("OK", "EXPECTEDFAIL"):
        return Case(test, "passed")
    if entry["result"] == "SKIP":
        return Case(test, "skipped", output.splitlines()[-1] if output else "no reason given")
    return Case(test, "failed", f"{entry['result']}, exit status {entry['returncode']}\n{output}")


def cases_of(build):
    for log in sorted((build / "meson-logs").glob("testlog*.json")):
        yield from cases_of_run(build, log)


def cases_of_run(build, log):
    with open(log, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            entry = json.loads(line)
            test = entry["name"].split(" / ")[-1]  # meson prefixes the project and the suite
            xml_path = build / f"{test}.xml"
            cases = list(gtest_cases(xml_path, test)) if xml_path.exists() else []
            yield from cases
            # A program can fail outside its cases: a crash, a leak found at exit, a time limit.
            if not cases or (entry["result"] not in ("OK", "SKIP") and all(c.verdict != "failed" for c in cases)):
                yield plain_case(entry, test)


def merge(builds):
    rank = {"failed": 2, "passed": 1, "skipped": 0}
    merged = {}
    for build in builds:
        for case in cases_of(build):
            if case.verdict == "failed":
                case.detail = f"in {build}:\n{case.detail}"
            known = merged.get(case.name)
            if known is None or rank[case.verdict] > rank[known.verdict]:
                merged[case.name] = case
    return list(merged.values())


def main():
    builds = [pathlib.Path(a) for a in sys.argv[1:]]
    cases = merge(builds)
    by_verdict = {v: [c for c in cases if c.verdict == v] for v in ("passed", "failed", "skipped")}
    for build in builds:
        if not any(True for _ in cases_of(build)):
            by_verdict["failed"].append(Case(f"{build}: no test ran", "failed"))
    for case in by_verdict["failed"]:
        print(f"\nFAILED {case.name}\n{case.detail}")
    if by_verdict["skipped"]:
        print()
    for case in by_verdict["skipped"]:
        print(f"skipped {case.name}: {case.detail}")
    print(", ".join(f"{len(by_verdict[v])} {v}" for v in by_verdict))
    return 1 if by_verdict["failed"] or not by_verdict["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
