#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Where the kernel refuses io_uring the library's thread goes by epoll, says so, and everything works; where it does not, by
io_uring. usage: refused_test.py DDPRUN OPERATIONS_TEST
"""

import ctypes
import os
import resource
import struct
import subprocess
import sys
import unittest

DDPRUN, PROGRAM = sys.argv[1:3]
IO_URING_SETUP = 425
# Turned off (kernel.io_uring_disabled, a container's filter), not there, no memory to be locked, no descriptor left.
REFUSALS = {"EPERM": 1, "ENOSYS": 38, "ENOMEM": 12, "EMFILE": 24}
libc = ctypes.CDLL(None, use_errno=True)


def refuse_io_uring(error):
    """As containers do, by seccomp."""
    arch = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}[os.uname().machine]
    load, equal, give = 0x20, 0x15, 0x06
    program = b"".join(struct.pack("HBBI", *line) for line in (
        (load, 0, 0, 4), (equal, 0, 2, arch), (load, 0, 0, 0), (equal, 1, 0, IO_URING_SETUP),
        (give, 0, 0, 0x7FFF0000), (give, 0, 0, 0x00050000 | error)))
    lines = ctypes.create_string_buffer(program)
    filter_ = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(lines))
    if libc.prctl(38, 1, 0, 0, 0) != 0 or libc.prctl(22, 2, filter_, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")


def is_io_uring_there():
    fd = libc.syscall(IO_URING_SETUP, 1, ctypes.create_string_buffer(120))
    if fd >= 0:
        os.close(fd)
    return fd >= 0


class Refused(unittest.TestCase):
    def expect(self, progress, shortage=None, wish=None):
        environment = {**os.environ, "MESSAGE_ENGINES": "user", "PROGRESS_WANTED": progress}
        environment.pop("DDPSOCK_PROGRESS", None)
        if wish is not None:
            environment["DDPSOCK_PROGRESS"] = wish
        run = subprocess.run([DDPRUN, "--off", "--engine", "user", "--", PROGRAM], env=environment, preexec_fn=shortage, capture_output=True,
                             text=True, timeout=60)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)

    def test_refused(self):
        for name, error in REFUSALS.items():
            for wish in None, "io_uring":
                with self.subTest(error=name, wish=wish):
                    self.expect("epoll", lambda error=error: refuse_io_uring(error), wish)

    def test_wished(self):
        self.expect("epoll", wish="epoll")

    @unittest.skipUnless(is_io_uring_there(), "the kernel refuses io_uring to everybody here")
    def test_granted(self):
        for wish in None, "io_uring", "nonsense":
            self.expect("io_uring", wish=wish)
        self.expect("io_uring", lambda: resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0)))
        # Below the numbers that the library's descriptors are moved to.
        self.expect("io_uring", lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
