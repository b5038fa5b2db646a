#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs the examples as their heads say, and without the library.

examples_test.py DDPRUN SOURCES PROGRAMS
"""

import collections
import contextlib
import difflib
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest

DDPRUN, SOURCES, PROGRAMS = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
SECONDS = 60
LOADED = (str(DDPRUN), "--off", "--")
MOST_LINES = 150
SLOTS, SLOT_BYTES, KEY_BYTES = 1024, 256, 48  # of keyvalue.c


class Example(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.log = self.folder / "log"
        registry = self.folder / "registry"
        registry.mkdir()
        self.environment = {**os.environ, "DDPSOCK_REGISTRY_DIR": str(registry), "DDPSOCK_LOG": "info", "DDPSOCK_LOG_FILE": str(self.log)}

    def run_one(self, name, *words, prefix=LOADED, **how):
        return subprocess.run([*prefix, PROGRAMS / name, *words], env=self.environment, capture_output=True, text=True, timeout=SECONDS,
                              **{"stdin": subprocess.DEVNULL, **({} if "input" not in how else {"stdin": None}), **how})

    @contextlib.contextmanager
    def serving(self, name, *words, prefix=LOADED):
        """The process that listens, and its port. It is ended if it does not end by itself."""
        process = subprocess.Popen([*prefix, PROGRAMS / name, *words], env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        try:
            yield process, self.port_of(process)
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def port_of(self, process):
        match = re.fullmatch(r"listening on port (\d+)\n", process.stdout.readline())
        self.assertTrue(match, "it does not listen")
        return match[1]

    def printed(self, done):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def end_of(self, process):
        out, err = process.communicate(timeout=SECONDS)
        self.assertEqual(process.returncode, 0, out + err)
        return out


class Histogram(Example):
    def test_workers_count_together(self):
        texts = [random.Random(i).choices("abcxyzABC \n.", k=3000 + i) for i in range(6)]
        files = []
        for i, text in enumerate(texts):
            files.append(self.folder / f"text{i}")
            files[-1].write_text("".join(text))
        count = collections.Counter(c.lower() for text in texts for c in text if c.isalpha())
        histogram = "".join(f"{letter} {count[letter]}\n" for letter in sorted(count))
        with self.serving("histogram", "serve", "0", str(len(files))) as (server, port):
            workers = [subprocess.Popen([*LOADED, PROGRAMS / "histogram", "127.0.0.1", port, path], env=self.environment,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                       for path in files]
            for worker in workers:
                self.assertEqual(self.end_of(worker), histogram)
            lines = self.end_of(server).splitlines(keepends=True)
        self.assertEqual("".join(lines[len(files):]), histogram)
        self.assertEqual(sorted(lines[:len(files)]), sorted(
            f"{str(path)[:31]}: {sum(c.isalpha() for c in text)} letters\n" for path, text in zip(files, texts)))

    def test_says_how_it_is_used(self):
        for words in ((), ("serve", "0", "0"), ("serve", "0", "65")):
            self.assertEqual(self.run_one("histogram", *words).returncode, 2)


class Transfer(Example):
    def test_files_arrive(self):
        for size in (0, 1, (1 << 20) - 1, 1 << 20, 20_000_003):
            with self.subTest(size=size):
                source, target = self.folder / "source", self.folder / "target"
                source.write_bytes(random.Random(size).randbytes(size))
                target.write_bytes(b"older and longer" * 10)
                with self.serving("transfer", "receive", "0", target) as (receiver, port):
                    done = self.run_one("transfer", "send", "127.0.0.1", port, source)
                    self.assertRegex(self.printed(done), rf"^{size} bytes, checksum \w{{16}}, arrived\n$")
                    self.assertRegex(self.end_of(receiver), rf"^{size} bytes, checksum \w{{16}}, as sent\n$")
                self.assertEqual(target.read_bytes(), source.read_bytes())
                if size:
                    self.assertTrue(done.stderr.endswith("100%\n"), done.stderr)

    def test_a_receiver_that_is_killed(self):
        source = self.folder / "source"
        source.write_bytes(bytes(100))
        with self.serving("transfer", "receive", "0", self.folder / "target") as (receiver, port):
            receiver.kill()
            receiver.wait()
            done = self.run_one("transfer", "send", "127.0.0.1", port, source)
        self.assertEqual(done.returncode, 1)
        self.assertIn("refused", done.stderr)


class KeyValue(Example):
    def test_put_and_get(self):
        with self.serving("keyvalue", "serve", "0") as (_, port):
            def ask(what, *words):
                return self.run_one("keyvalue", what, "127.0.0.1", port, *words)
            self.assertEqual(ask("get", "apple").returncode, 1)
            self.assertEqual(self.printed(ask("put", "apple", "red")), "version 1\n")
            self.assertEqual(self.printed(ask("put", "plum", "blue")), "version 1\n")
            self.assertEqual(self.printed(ask("put", "apple", "green")), "version 2\n")
            self.assertEqual(self.printed(ask("get", "apple")), "green (version 2)\n")
            self.assertEqual(self.printed(ask("get", "plum")), "blue (version 1)\n")

    def test_gets_during_puts_see_whole_values(self):
        with self.serving("keyvalue", "serve", "0") as (_, port):
            self.printed(self.run_one("keyvalue", "put", "127.0.0.1", port, "k", "v"))
            putting = subprocess.Popen([*LOADED, PROGRAMS / "keyvalue", "put", "127.0.0.1", port, "k", "v", "3000"], env=self.environment,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            with contextlib.ExitStack() as stack:
                stack.callback(putting.wait)
                stack.callback(putting.kill)
                self.printed(self.run_one("keyvalue", "get", "127.0.0.1", port, "k", "3000"))
                self.assertEqual(self.end_of(putting), "version 3001\n")
            self.assertEqual(self.printed(self.run_one("keyvalue", "get", "127.0.0.1", port, "k")), "v-3000 (version 3001)\n")

    def test_a_get_reads_again_until_the_value_is_whole(self):
        with self.serving("keyvalue", "serve", "0") as (server, port):
            self.printed(self.run_one("keyvalue", "put", "127.0.0.1", port, "torn-key", "whole"))
            with pathlib.Path(f"/proc/{server.pid}/mem").open("r+b", buffering=0) as memory:
                place = table_of(server.pid)
                memory.seek(place)
                place += memory.read(SLOTS * SLOT_BYTES).index(b"torn-key\0") + KEY_BYTES
                memory.seek(place)
                memory.write(b"W")  # as a put in its midst leaves it
                getting = subprocess.Popen([*LOADED, PROGRAMS / "keyvalue", "get", "127.0.0.1", port, "torn-key"], env=self.environment,
                                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                with contextlib.ExitStack() as stack:
                    stack.callback(getting.wait)
                    stack.callback(getting.kill)
                    with self.assertRaises(subprocess.TimeoutExpired):
                        getting.wait(1)
                    memory.seek(place)
                    memory.write(b"w")
                    self.assertRegex(self.end_of(getting), r"^whole \(version 1\)\n\d+ Reads met a put")

    def test_the_server_sleeps_during_gets(self):
        with self.serving("keyvalue", "serve", "0") as (server, port):
            def ask(times):
                self.printed(self.run_one("keyvalue", "get", "127.0.0.1", port, "k", str(times)))
                return switches(server.pid)
            self.printed(self.run_one("keyvalue", "put", "127.0.0.1", port, "k", "v"))
            ask(1)
            once = -switches(server.pid) + ask(1)
            many = -switches(server.pid) + ask(2000)
            self.assertLess(many, once + 50)


def table_of(pid):
    """The address of the store's table in a process."""
    names = subprocess.run(["nm", PROGRAMS / "keyvalue"], capture_output=True, text=True, check=True).stdout
    offset = int(re.search(r"^(\w+) b table$", names, re.M)[1], 16)
    start = re.search(r"^(\w+)-.*/keyvalue$", pathlib.Path(f"/proc/{pid}/maps").read_text(), re.M)[1]
    return int(start, 16) + offset


def switches(pid):
    """How often the first thread of a process went to sleep."""
    return int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", pathlib.Path(f"/proc/{pid}/task/{pid}/status").read_text(), re.M)[1])


class Pipeline(Example):
    def test_every_row_arrives_once(self):
        for rows in (1, 3, 50):
            with self.subTest(rows=rows), self.serving("pipeline", "consume", "0") as (consumer, port):
                done = self.printed(self.run_one("pipeline", "produce", "127.0.0.1", port, str(rows)))
                match = re.fullmatch(rf"{rows} rows, sum (\d+), \d+\.\d+ s, of which \d+\.\d+ s waiting\n", done)
                self.assertTrue(match, done)
                self.assertEqual(self.end_of(consumer), f"{rows} rows, sum {match[1]}\n")
                self.assertGreater(int(match[1]), 0)


class Echo(Example):
    LINES = "one\ntwo\n" + "x" * 4000 + "\n"

    def echo(self, server, client, prefixes):
        with self.serving(server, "serve", "0", prefix=prefixes[0]) as (_, port):
            done = self.run_one(client, "ask", "127.0.0.1", port, prefix=prefixes[1], input=self.LINES)
        self.assertEqual(self.printed(done), self.LINES)
        return self.log.read_text() if self.log.exists() else ""

    def test_three_lines_differ(self):
        plain, changed = ((SOURCES / name).read_text().splitlines() for name in ("echo_tcp.c", "echo_ddp.c"))
        changes = [line for line in difflib.ndiff(plain, changed) if line[0] in "+-"]
        self.assertEqual([line[0] for line in changes], ["+"] * 3, changes)

    def test_plain(self):
        self.assertNotIn("stream", self.echo("echo_tcp", "echo_tcp", (LOADED, LOADED)))

    def test_changed(self):
        log = self.echo("echo_ddp", "echo_ddp", (LOADED, LOADED))
        self.assertRegex(log, r"connect.*stream")
        self.assertRegex(log, r"accept.*stream")

    def test_changed_without_the_library_is_plain(self):
        self.assertEqual(self.echo("echo_ddp", "echo_ddp", ((), ())), "")
        self.assertEqual(self.echo("echo_tcp", "echo_ddp", ((), ())), "")


class All(Example):
    def test_without_the_library_they_say_what_they_need(self):
        (self.folder / "source").write_bytes(b"some")
        for name, words in {"transfer": ["receive", "0", self.folder / "target"], "keyvalue": ["serve", "0"], "pipeline": ["consume", "0"],
                            "histogram": ["serve", "0", "1"]}.items():
            with self.subTest(name=name):
                done = self.run_one(name, *words, prefix=())
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertIn("needs ddpsock", done.stderr)
        for name, words in {"transfer": ["send", "127.0.0.1", "1", self.folder / "source"], "keyvalue": ["get", "127.0.0.1", "1", "k"],
                            "pipeline": ["produce", "127.0.0.1", "1", "5"], "histogram": ["127.0.0.1", "1", os.devnull]}.items():
            with self.subTest(name=name):
                done = self.run_one(name, *words, prefix=())
                self.assertEqual(done.returncode, 2)
                self.assertIn("needs ddpsock", done.stderr)

    def test_usage(self):
        for name in ("transfer", "keyvalue", "pipeline", "histogram", "echo_tcp", "echo_ddp"):
            done = self.run_one(name, "nonsense")
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn("usage:", done.stderr)

    def test_they_are_short(self):
        for path in SOURCES.glob("*.[ch]"):
            self.assertLess(len(path.read_text().splitlines()), MOST_LINES, path.name)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
