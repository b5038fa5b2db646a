#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Programs that do their socket I/O by io_uring. rings_test.py STATIC PROGRAM DDPRUN DDPSTAT

STATIC: the program with a copy of liburing inside."""

import os
import subprocess
import sys
import unittest

SKIPPED = 77  # io_uring is not permitted here
SIZE = 300_000
SOL_DDP, DDP_STATUS, MODE_STREAM = 0x44445000, 3, 1

# Two ends in one process; argument: what to do with a ring. Prints what becomes of connections.
SOCKETS_AND_A_RING = """
import ctypes, errno, os, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def pair():
    listener = socket.create_server(("127.0.0.1", 0))
    a = socket.create_connection(listener.getsockname())
    return a, listener.accept()[0]
def talk(a, b):
    for text in (b"there", b"back again"):
        a.sendall(text)
        assert b.recv(100) == text
        a, b = b, a
def mode(s):
    return struct.unpack_from("I", s.getsockopt(%d, %d, 512))[0]
first = pair()
talk(*first)
modes = [mode(first[0])]
ring = libc.syscall(ctypes.c_long(425), ctypes.c_long(4), ctypes.create_string_buffer(120))
failed = errno.errorcode[ctypes.get_errno()] if ring < 0 else "none"
talk(*first)
second = pair()
talk(*second)
print(failed, *modes, mode(first[0]), mode(second[0]))
"""


class Rings(unittest.TestCase):
    def start(self, before, *arguments, program=None, **more):
        process = subprocess.Popen([*before, program or PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, **more)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()

    def port_of(self, server):
        line = server.stdout.readline()
        if not line and server.wait() == SKIPPED:
            self.skipTest("io_uring is not permitted here")
        return int(line)

    def exchange(self, server_with, client_with, **more):
        server = self.start(server_with, "server", **more)
        port = self.port_of(server)
        client = self.start(client_with, "client", str(port), str(SIZE), **more)
        out, err = client.communicate(timeout=30)
        self.assertEqual((client.returncode, out), (0, f"{SIZE}\n"), err)
        self.assertEqual(server.wait(30), 0)

    def test_bytes_are_right(self):
        self.exchange([], [])
        for engine in ("user", "shm"):
            prefer = [DDPRUN, "--prefer", "--engine", engine, "--"]
            for server_with, client_with in ((prefer, prefer), (prefer, []), ([], prefer)):
                for program in (PROGRAM, STATIC):
                    with self.subTest(engine=engine, server=server_with, client=client_with, program=program):
                        self.exchange(server_with, client_with, program=program)

    def test_towards_a_program_that_does_not(self):
        for program in (PROGRAM, STATIC):
            with self.subTest(program=program):
                self.check_towards_another(program)

    def check_towards_another(self, program):
        prefer = [DDPRUN, "--prefer", "--"]
        server = self.start(prefer, "server", program=program)
        port = self.port_of(server)
        text = subprocess.run([*prefer, sys.executable, "-c", f"""
import socket
s = socket.create_connection(("127.0.0.1", {port}))
s.sendall(b"x" * 1000)
got = b""
while len(got) < 1000: got += s.recv(1000)
print(got == b"x" * 1000)"""], capture_output=True, text=True, timeout=30, check=True).stdout
        self.assertEqual(text, "True\n")

    def test_required_is_an_error_that_names_the_cause(self):
        server = self.start([DDPRUN, "--require", "--"], "server")
        out, err = server.communicate(timeout=30)
        self.assertEqual((server.returncode, out), (125, ""))
        self.assertIn("io_uring", err)
        # Without the launcher's look the calls say so.
        rules = subprocess.run([DDPRUN, "--require", "--", "printenv", "DDPSOCK_RULES", "LD_PRELOAD"],
                               capture_output=True, text=True, check=True).stdout.splitlines()
        environment = dict(os.environ, DDPSOCK_RULES="\n".join(rules[:-1]), LD_PRELOAD=rules[-1], DDPSOCK_LOG="info")
        server = self.start([], "server", env=environment)
        out, err = server.communicate(timeout=30)
        if server.returncode != SKIPPED:
            self.assertEqual((server.returncode, out), (1, ""))
            self.assertIn("Protocol error", err)
            self.assertIn("io_uring", err)

    def test_explained(self):
        text = subprocess.run([DDPRUN, "--explain", "--address", "127.0.0.1", "--port", "1", "--", PROGRAM],
                              capture_output=True, text=True, check=True).stdout
        self.assertIn("not covered", text)
        self.assertIn("io_uring", text)

    def test_shown(self):
        server = self.start([DDPRUN, "--prefer", "--"], "server")
        self.port_of(server)
        text = subprocess.run([DDPSTAT], capture_output=True, text=True, check=True).stdout
        line = next(line for line in text.splitlines() if f" {server.pid}:" in line)
        self.assertIn("io_uring", line)

    def test_files_only_is_the_users_word(self):
        text = subprocess.run([DDPRUN, "--explain", "--address", "127.0.0.1", "--port", "1", "--", PROGRAM],
                              env=dict(os.environ, DDPSOCK_IO_URING="files"),
                              capture_output=True, text=True, check=True).stdout
        self.assertIn(": covered", text)

    def sockets_and_a_ring(self, *options, **environment):
        program = SOCKETS_AND_A_RING % (SOL_DDP, DDP_STATUS)
        result = subprocess.run([DDPRUN, *options, "--", "/usr/bin/python3", "-c", program],
                                env=dict(os.environ, **environment), capture_output=True, text=True, timeout=30)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout.split()

    def test_a_ring_that_is_made_by_syscall(self):
        failed, *modes = self.sockets_and_a_ring("--prefer")
        if failed == "none":
            self.assertEqual(modes, [f"{MODE_STREAM}", "0", "0"])
        self.assertEqual(self.sockets_and_a_ring("--prefer", DDPSOCK_IO_URING="files")[1:], [f"{MODE_STREAM}"] * 3)
        self.assertEqual(self.sockets_and_a_ring("--require"), ["EPERM"] + [f"{MODE_STREAM}"] * 3)


if __name__ == "__main__":
    DDPSTAT, DDPRUN, PROGRAM, STATIC = (sys.argv.pop() for _ in range(4))
    unittest.main()
