# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Results of a Python test in GoogleTest's XML, so that its cases are counted one by one."""

import argparse
import xml.etree.ElementTree as ET


def parse(*names):
    """The command line of a test that meson runs with `protocol: 'gtest'`: `names`, then what meson adds."""
    parser = argparse.ArgumentParser()
    for name in names:
        parser.add_argument(name)
    parser.add_argument("--gtest_output", default="")
    return parser.parse_args()


def finish(options, suite, results):
    """Writes and prints `results`, name -> complaints, none where the case passed; the exit status."""
    root = ET.Element("testsuites")
    cases = ET.SubElement(root, "testsuite", name=suite)
    for name, complaints in results.items():
        case = ET.SubElement(cases, "testcase", classname=suite, name=name, status="run", result="completed")
        if complaints:
            ET.SubElement(case, "failure").text = "\n".join(complaints)
            print(f"FAILED {name}", *(f"    {line}" for line in complaints), sep="\n")
    if options.gtest_output:
        ET.ElementTree(root).write(options.gtest_output.removeprefix("xml:"))
    failed = sum(bool(complaints) for complaints in results.values())
    print(f"{len(results) - failed} passed, {failed} failed")
    return 1 if failed or not results else 0
