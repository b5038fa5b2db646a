#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Starts that only the superuser of a whole machine can make, in the lab's guest: a million descriptors, and more.

guest_starts_test.py STARTS_TEST ARGUMENT...    as starts_test.py has them
"""

import pathlib
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "lab"))
import guest  # noqa: E402
import kernel  # noqa: E402

CASES = "Starts.test_many_descriptors", "Starts.test_more_descriptors_than_are_kept"


def seen_from_anywhere(argument):
    path = pathlib.Path(argument)
    return str(path.resolve()) if path.is_file() else argument


def main():
    command = ["/usr/bin/python3", "-B", *map(seen_from_anywhere, sys.argv[1:]), "-v", *CASES]
    try:
        with guest.Guest("guest_starts", guest.Options(memory_mb=1536)) as host:
            host.run(["/bin/sh", "-c", "echo 2097152 >/proc/sys/fs/nr_open"]).check()
            done = host.run(command, seconds=240)
    except kernel.KernelError as error:
        print(error)
        return guest.SKIPPED
    except guest.GuestError as error:
        return str(error)
    print(done.stderr.decode(errors="replace"))
    if b"skipped" in done.stderr:
        return "a case was skipped"
    return done.status


if __name__ == "__main__":
    sys.exit(main())
