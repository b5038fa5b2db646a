#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The ddp-perf command: its options, a pair of processes, and peers that are no iWARP peers. Argument: the program."""

import contextlib
import json
import re
import socket
import subprocess
import sys
import unittest

PROGRAM = None
SECONDS = 30


def run(*arguments):
    return subprocess.run([PROGRAM, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=SECONDS)


@contextlib.contextmanager
def server(*arguments):
    """A server on a port of its own choice: (process, port)."""
    with subprocess.Popen([PROGRAM, *arguments, "-p", "0"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process, int(re.search(r"waiting on port (\d+)", process.stderr.readline())[1])
        finally:
            process.kill()


@contextlib.contextmanager
def plain_server(answer):
    """A TCP server that answers each connection's first bytes with `answer`, or not at all (None): its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1], lambda: answer_one(listening, answer)


def answer_one(listening, answer):
    connection, _ = listening.accept()
    connection.settimeout(SECONDS)
    connection.recv(4096)
    if answer is not None:
        connection.sendall(answer)
    return connection


class Command(unittest.TestCase):
    def assert_refused(self, arguments, text):
        done = run(*arguments)
        self.assertEqual(done.returncode, 2, done)
        self.assertIn(text, done.stderr)

    def test_refuses_what_makes_no_sense(self):
        self.assert_refused([], "A subcommand is required")
        self.assert_refused(["send-lat", "-s", "0"], "--size")
        self.assert_refused(["send-lat", "-s", str(1 << 31)], "--size")
        self.assert_refused(["send-lat", "-a", "-s", "8"], "excludes")
        self.assert_refused(["send-bw", "-n", "4"], "--iters")
        self.assert_refused(["send-bw", "-r", "2"], "--rx-depth")
        self.assert_refused(["send-bw", "-b"], "-b")
        self.assert_refused(["read-bw", "-o", "129"], "--outs")
        self.assert_refused(["write-bw", "-p", "70000"], "--port")

    def test_explains_itself(self):
        done = run("read-lat", "--help")
        self.assertEqual(done.returncode, 0)
        self.assertIn("--outs", done.stdout)

    def test_measures_and_speaks_json(self):
        for what, key in (("send-lat", "t_typical_us"), ("write-bw", "mib_per_s")):
            with self.subTest(what), server(what, "-n", "50", "--json", "-e") as (process, port):
                done = run(what, "127.0.0.1", "-p", port, "-n", "50", "--json", "-e")
                self.assertEqual(done.returncode, 0, done)
                found = json.loads(done.stdout)
                self.assertEqual((found["test"], found["iterations"]), (what, 50))
                self.assertGreater(found[key], 0)
                told, said = process.communicate(timeout=SECONDS)
                self.assertEqual(process.returncode, 0, said)
                self.assertEqual(json.loads(told)["bytes"], found["bytes"])

    def test_prints_tables(self):
        with server("read-bw", "-n", "5", "-e", "-a") as (_, port):
            done = run("read-bw", "127.0.0.1", "-p", port, "-n", "5", "-e", "-a")
        self.assertEqual(done.returncode, 0, done)
        head, *rows = done.stdout.splitlines()
        self.assertIn("BW average[MB/sec]", head)
        self.assertEqual([int(r.split()[0]) for r in rows], [1 << n for n in range(1, 24)])

    def test_says_what_is_no_iwarp_peer(self):
        # A connection refused, too.
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            done = run("send-lat", "127.0.0.1", "-p", unused.getsockname()[1])
        self.assertEqual((done.returncode, done.stderr),
                         (1, "ddp-perf: send-lat: connecting: Connection refused\n"))
        with plain_server(b"HTTP/1.0 400 Bad Request\r\n\r\n") as (port, serve):
            client = subprocess.Popen([PROGRAM, "send-lat", "127.0.0.1", "-p", str(port)], stderr=subprocess.PIPE,
                                      text=True)
            with serve():
                said = client.communicate(timeout=SECONDS)[1]
        self.assertEqual(client.returncode, 1)
        self.assertIn("MPA start-up", said)

    def test_gives_a_silent_server_up(self):
        with plain_server(None) as (port, serve):
            client = subprocess.Popen([PROGRAM, "read-bw", "127.0.0.1", "-p", str(port), "--timeout", "1"],
                                      stderr=subprocess.PIPE, text=True)
            with serve():
                said = client.communicate(timeout=SECONDS)[1]
        self.assertEqual(client.returncode, 1)
        self.assertIn("MPA start-up", said)

    def test_server_gives_up(self):
        done = run("send-bw", "-p", "0", "--wait", "1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("accepting: Connection timed out", done.stderr)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
