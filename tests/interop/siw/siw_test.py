#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""siw_test.py SCENARIOS [--gtest_output=xml:FILE] [--gtest_filter=PATTERN]

Boots the lab's guest, runs the scenarios in it (siw_scene.py), then has Wireshark judge what was on the wire. The result
file holds the scenarios' own cases and one case a capture. Captures stay in build/lab/interop_siw/out.
"""

import argparse
import pathlib
import sys
import xml.etree.ElementTree as ET

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent.parent / "lab")]

import decode
import guest
import kernel

PORTS = range(20000, 22000)  # duel.cpp
RUN_SECONDS = 420
SKIPPED = 77
# What runs together under one capture. Connections of the second and the last kind do not end in peace.
GROUPS = {
    "start": "*Start.Agrees*:*PrivateData.Of*:*Depths*:*ReadyToReceive*:*Overlooked*",
    "rejected": "*Start.Rejects*",
    "data": "*/Data.*:*Load.*-*SendInvalidates*",
    "ends": "*Offences*:*Ends*:*SendInvalidates*",
    # 64 MB messages: what they say of the frames the others do, and Wireshark would need minutes.
    "uncaptured": "*Huge*",
}


def judge(name, path):
    """What is wrong with a capture, a line each."""
    seen = decode.decode(str(path), PORTS)
    if name == "rejected":
        yield from (f"{n} x {what}" for what, n in seen.malformed.items() if what != "Reject bit set by Responder")
        if not all(c.is_rejected for c in seen.connections):
            yield "a connection was not rejected"
        return
    yield from decode.complaints(seen, crc=None, terminates=None if name == "ends" else 0, is_cut=name == "ends")
    with_crc = [c for c in seen.connections if c.crc_good]
    without = [c for c in seen.connections if c.crc_unchecked]
    if not with_crc or not without:
        yield f"{len(with_crc)} connections with CRC and {len(without)} without: both were played"
    for c in with_crc:
        if c.crc_unchecked or c.crc_good != c.fpdus:
            yield f"not all CRCs of a connection were checked: {c}"


def capture_cases(out, names):
    """A test suite with one case a capture."""
    suite = ET.Element("testsuite", name="Capture")
    for name in names:
        case = ET.SubElement(suite, "testcase", classname="Capture", name=name, status="run", result="completed")
        try:
            wrong = list(judge(name, out / f"{name}.pcap"))
        except decode.DecodeError as error:
            wrong = [str(error)]
        if wrong:
            ET.SubElement(case, "failure").text = "\n".join(wrong)
    return suite


def failures_of(root):
    return [f"{case.get('classname')}.{case.get('name')}: {failure.text or failure.get('message')}"
            for case in root.iter("testcase") for failure in case.iter("failure")]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("scenarios", type=pathlib.Path)
    parser.add_argument("--gtest_output", default="xml:/dev/null")
    parser.add_argument("--gtest_filter", help="instead of all groups, without a capture")
    options = parser.parse_args()
    groups = {"uncaptured": options.gtest_filter} if options.gtest_filter else GROUPS
    try:
        with guest.Guest("interop_siw", guest.Options(memory_mb=2048)) as host:
            print(f"booted in {host.boot_took:.1f} s", flush=True)
            done = host.run(["/usr/bin/python3", "-B", HERE / "siw_scene.py", options.scenarios.resolve(),
                             *(f"{name}={pattern}" for name, pattern in groups.items())], seconds=RUN_SECONDS,
                            sink=lambda _, data: sys.stdout.buffer.write(data))
            sys.stdout.flush()
            if done.status != 0:
                sys.exit(f"the scene ended with status {done.status}\n{host.tail()}")
            out = host.out
    except kernel.KernelError as error:
        print(error)
        sys.exit(SKIPPED)
    except guest.GuestError as error:
        sys.exit(str(error))
    merged = ET.Element("testsuites")
    for name in groups:
        result = out / f"{name}.xml"
        if not result.exists():
            sys.exit(f"the scenarios of '{name}' left no result: they crashed, or none was chosen")
        merged.extend(ET.parse(result).getroot().iter("testsuite"))
    merged.append(capture_cases(out, [name for name in groups if not name.startswith("uncaptured")]))
    ET.ElementTree(merged).write(options.gtest_output.removeprefix("xml:"))
    wrong = failures_of(merged)
    print("\n".join(wrong) or f"{len(list(merged.iter('testcase')))} cases passed")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
