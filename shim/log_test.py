#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Where the log's lines go: to standard error, and never into what a program has put in its place.
usage: log_test.py DDPRUN

Run with the arguments `play TASK` it is a program of a test.
"""

import os
import socket
import subprocess
import sys
import tempfile
import unittest

THIS = os.path.abspath(__file__)
STDERR = 2


def talk(before_connecting=lambda: None):
    """A connection that the library logs; what came out of it at the other end."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        before_connecting()
        client = socket.create_connection(listener.getsockname())
        server = listener.accept()[0]
        client.sendall(b"all")
        client.shutdown(socket.SHUT_WR)
        with client, server, server.makefile("rb") as stream:
            return stream.read()


def usual():
    assert talk() == b"all"


def file_in_its_place():
    with tempfile.TemporaryFile(buffering=0) as file:
        os.dup2(file.fileno(), STDERR)
        assert talk() == b"all"
        print(os.fstat(STDERR).st_size)


def socket_in_its_place():
    one, other = socket.socketpair()
    os.dup2(one.fileno(), STDERR)
    assert talk() == b"all"
    other.setblocking(False)
    try:
        print(len(other.recv(1000)))
    except BlockingIOError:
        print(0)


def connection_in_its_place():
    print(len(talk(lambda: os.close(STDERR))) - len(b"all"))


class Log(unittest.TestCase):
    def play(self, task, stderr):
        env = {k: v for k, v in os.environ.items() if not k.startswith("DDPSOCK_")} | {"DDPSOCK_LOG": "info"}
        with tempfile.TemporaryDirectory(prefix="ddpsock-test-") as folder:
            env["DDPSOCK_REGISTRY_DIR"] = folder
            return subprocess.run([DDPRUN, "--require", "--", sys.executable, THIS, "play", task], env=env,
                                  stdout=subprocess.PIPE, stderr=stderr, text=True, timeout=60, check=True)

    def test_goes_to_standard_error(self):
        self.assertIn(" connect fd=", self.play("usual", subprocess.PIPE).stderr)

    def test_goes_into_nothing_else(self):
        for task in ["file_in_its_place", "socket_in_its_place", "connection_in_its_place"]:
            with self.subTest(task):
                done = self.play(task, subprocess.PIPE)
                self.assertEqual((done.stdout, done.stderr), ("0\n", ""))

    def test_goes_into_no_connection_that_it_began_with(self):
        """As a server's that inetd starts."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            client = socket.create_connection(listener.getsockname())
            with listener.accept()[0] as server:
                self.play("usual", server)
            with client:
                self.assertEqual(client.recv(1000), b"")


if __name__ == "__main__":
    if sys.argv[1:2] == ["play"]:
        globals()[sys.argv[2]]()
        sys.exit()
    DDPRUN = sys.argv.pop(1)
    unittest.main()
