# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A seccomp filter from a list of allowed system calls, as container managers and systemd set one: before the program starts.

confine.py FILTER COMMAND...    FILTER is `kill:` or `errno:` and a file of names
"""

import ctypes
import os
import re
import struct
import sys

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}[os.uname().machine]
ALLOW, ERRNO, KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
EPERM, ENOSYS = 1, 38
HEADERS = "/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm-generic/unistd.h"


def numbers():
    """Of every system call that the kernel's header names."""
    for path in HEADERS:
        if os.path.exists(path):
            with open(path, encoding="ascii") as header:
                return {name: int(number) for name, number in re.findall(r"#define __NR_(\w+) (\d+)", header.read())}
    raise FileNotFoundError("the kernel's header of system call numbers")


def read_names(path):
    with open(path, encoding="ascii") as file:
        return {name for line in file if not line.startswith("#") for name in line.split()}


def make_filter(names, other):
    """The program of a filter that allows `names` and gives `other` to all else; a list of instructions."""
    load, equal, give = 0x20, 0x15, 0x06
    known = numbers()
    allowed = sorted(known[name] for name in names if name in known)
    lines = [(load, 0, 0, 4), (equal, 1, 0, AUDIT_ARCH), (give, 0, 0, KILL_PROCESS), (load, 0, 0, 0)]
    if other != KILL_PROCESS:
        lines += [(equal, 0, 1, known["clone3"]), (give, 0, 0, ERRNO | ENOSYS)]
    for number in allowed:
        lines += [(equal, 0, 1, number), (give, 0, 0, ALLOW)]
    return [*lines, (give, 0, 0, other)]


def confine(names, other):
    """Puts the calling process under it; what it executes too."""
    lines = b"".join(struct.pack("HBBI", *line) for line in make_filter(names, other))
    text = ctypes.create_string_buffer(lines, len(lines))
    program = struct.pack("HxxxxxxP", len(lines) // 8, ctypes.addressof(text))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) != 0 or libc.prctl(22, 2, program, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")


def main():
    kind, path = sys.argv[1].split(":", 1)
    confine(read_names(path), KILL_PROCESS if kind == "kill" else ERRNO | EPERM)
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
