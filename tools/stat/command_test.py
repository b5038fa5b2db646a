#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""ddpstat beside real programs. Arguments: ddpstat, ddprun."""

import contextlib
import fcntl
import json
import os
import pty
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

DDPSTAT = DDPRUN = None
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
SECONDS = 30
NOBODY = 65534

# One end of a connection, which does what its input says and answers "done".
PROGRAM = r"""
import os, socket, sys
def say(*words):
    print(*words, flush=True)
if sys.argv[1] == "serve":
    listening = socket.create_server(("127.0.0.1", 0))
    say(listening.getsockname()[1])
    connection = listening.accept()[0]
elif sys.argv[1] == "inherit":
    connection = socket.socket(fileno=int(sys.argv[2]))
else:
    connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
say("ready")
for line in sys.stdin:
    what, *number = line.split()
    if what == "write":
        connection.sendall(bytes(int(number[0])))
    elif what == "read":
        left = int(number[0])
        while left:
            left -= len(connection.recv(left))
    elif what == "fork":
        child = os.fork()
        if child == 0:
            sys.stdin.close()
            os.read(os.open(sys.argv[2], os.O_RDONLY), 1)
            os._exit(0)
        say(child)
    elif what == "plain":
        other = socket.create_connection(("127.0.0.1", int(number[0])))
    elif what == "close":
        connection.close()
    elif what == "closefds":
        keep = connection.fileno()
        os.closerange(3, keep)
        os.closerange(keep + 1, 70000)
    elif what == "exec":
        os.set_inheritable(connection.fileno(), True)
        os.execv(sys.executable, [sys.executable, "-c", sys.argv[-1], "inherit", str(connection.fileno())])
    say("done")
"""

# The same in message mode, by the calls of ddpsock.h.
MESSAGES = r"""
import ctypes as c, os, signal, socket, sys
SOL_DDP, DDP_MODE, DDP_PROGRESS = 0x44445000, 1, 8
class Iovec(c.Structure):
    _fields_ = [("base", c.c_void_p), ("length", c.c_size_t)]
class Receive(c.Structure):
    _fields_ = [("cookie", c.c_uint64), ("iov", c.POINTER(Iovec)), ("count", c.c_uint32), ("reserved", c.c_uint32)]
class Send(c.Structure):
    _fields_ = [*Receive._fields_[:3], ("flags", c.c_uint32), ("immediate", c.c_uint64), ("invalidate", c.c_uint32),
                ("reserved", c.c_uint32)]
class Completion(c.Structure):
    _fields_ = [("cookie", c.c_uint64), ("fd", c.c_int), ("kind", c.c_uint32), ("status", c.c_int), ("flags", c.c_uint32),
                ("bytes", c.c_uint64), ("value", c.c_uint64), ("stag", c.c_uint32), ("terminate", c.c_uint32)]
calls = c.CDLL(None, use_errno=True)
room = c.create_string_buffer(4096)
def say(*words):
    print(*words, flush=True)
def in_message_mode(s):
    s.setsockopt(SOL_DDP, DDP_MODE, 2)
    if sys.argv[2] == "caller":
        s.setsockopt(SOL_DDP, DDP_PROGRESS, 1)
    return s
if sys.argv[1] == "serve":
    listening = in_message_mode(socket.create_server(("127.0.0.1", 0)))
    say(listening.getsockname()[1])
    connection = listening.accept()[0]
else:
    connection = in_message_mode(socket.socket())
    connection.connect(("127.0.0.1", int(sys.argv[1])))
if calls.ddp_establish(connection.fileno(), 10000) != 0:
    say(os.strerror(c.get_errno()))
say("ready")
for line in sys.stdin:
    what, *number = line.split()
    if what in ("send", "receive"):
        part = Iovec(c.addressof(room), int(number[0]))
        work = Send if what == "send" else Receive
        if getattr(calls, "ddp_post_" + what[:4].replace("rece", "recv"))(connection.fileno(),
                                                                         c.byref(work(1, c.pointer(part), 1)), 1) != 1:
            say(os.strerror(c.get_errno()))
    elif what == "take":
        done = Completion()
        for _ in range(int(number[0])):
            if calls.ddp_wait(connection.fileno(), c.byref(done), 1, 10000) != 1:
                say("nothing came")
    elif what == "fork":
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            sys.stdin.close()
            os.read(os.open(sys.argv[3], os.O_RDONLY), 1)
            connection.close()
            os.read(os.open(sys.argv[3], os.O_RDONLY), 1)
            os._exit(0)
        say(child)
    elif what == "close":
        connection.close()
    say("done")
"""


def ddpstat(*arguments, **options):
    return subprocess.run([DDPSTAT, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=SECONDS, **options)


def snapshot(*wanted):
    done = ddpstat("--json", *wanted)
    if done.stderr not in ("", "ddpstat: no such process or connection of this user\n"):
        raise AssertionError(done)
    return json.loads(done.stdout)


def eventually(question):
    """What the kernel does on its own time (a process that dies) is asked for until it is so."""
    deadline = time.monotonic() + SECONDS
    while not (answer := question()):
        if time.monotonic() > deadline:
            raise AssertionError("it never came to be")
        time.sleep(0.01)
    return answer


class Program:
    def __init__(self, case, *words, command=()):
        self.process = subprocess.Popen([*case.loading, *(command or (PYTHON, "-c", PROGRAM, *words, PROGRAM))],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=case.environment)
        case.addCleanup(self.end)

    @property
    def pid(self):
        return self.process.pid

    def line(self):
        return self.process.stdout.readline().strip()

    def tell(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return self.line()

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def connections(self):
        return snapshot(self.pid)["connections"]

    def connection(self):
        found = self.connections()
        assert len(found) == 1, found
        return found[0]


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.mkdtemp()
        os.chmod(folder, 0o1777)
        self.addCleanup(shutil.rmtree, folder)
        self.folder = folder
        self.environment = {**os.environ, "DDPSOCK_REGISTRY_DIR": folder}
        self.loading = self.load("user")

    def load(self, engine):
        return [DDPRUN, "--engine", engine, "--"]

    def pair(self, engine):
        self.loading = self.load(engine)
        server = Program(self, "serve")
        port = server.line()
        client = Program(self, port)
        self.assertEqual(client.line(), "ready")
        self.assertEqual(server.line(), "ready")
        return server, client, port

    def exchange(self, server, client, size, times):
        for _ in range(times):
            self.assertEqual(client.tell("write", size), "done")
            self.assertEqual(server.tell("read", size), "done")


class Connections(Case):
    def check_both_ends(self, engine):
        server, client, port = self.pair(engine)
        self.exchange(server, client, 1000, 7)
        self.assertEqual(server.tell("write", 300), "done")
        self.assertEqual(client.tell("read", 300), "done")
        here, there = client.connection(), server.connection()
        for end in here, there:
            self.assertEqual((end["engine"], end["mode"], end["state"], end["verdict"]), (engine, "stream", "open", "ddp"))
            self.assertTrue(end["is_proved"] and end["has_crc"])
            self.assertEqual(end["holders"], [end["pid"]])
            self.assertEqual(end["program"], os.path.basename(PYTHON)[:15])
            self.assertEqual((end["sent"]["errors"], end["received"]["errors"]), (0, 0))
        self.assertEqual((here["sent"]["bytes"], here["received"]["bytes"]), (7000, 300))
        self.assertEqual((there["sent"]["bytes"], there["received"]["bytes"]), (300, 7000))
        self.assertEqual((here["peer"], there["local"]), (f"127.0.0.1:{port}", f"127.0.0.1:{port}"))
        self.assertEqual(here["local"], there["peer"])
        self.assertEqual((here["role"], there["role"]), ("initiator", "responder"))
        self.assertEqual(here["reason"], "the listener on this host is in DDPMODE")
        self.assertEqual(there["reason"], "the client on this host is in DDPMODE")
        return server, client

    def test_user_engine(self):
        server, client = self.check_both_ends("user")
        here, there = client.connection(), server.connection()
        self.assertEqual((here["sent"]["fpdus"], there["received"]["fpdus"]), (7, 7))
        self.assertEqual(here["memory"], "shared memory is not wanted, or the peer is not proved")
        self.assertIsNone(here["ring_to_peer"])
        self.assertEqual(ddpstat("--detail", server.pid).stdout.count("engine    user"), 1)

    def test_shared_memory_and_what_lies_in_it(self):
        server, client = self.check_both_ends("shm")
        here = client.connection()
        self.assertEqual((here["memory"], here["ring_to_peer"], here["ring_to_read"]), ("shared memory", 0, 0))
        self.assertEqual(client.tell("write", 12345), "done")
        both = {end["pid"]: end for end in snapshot(server.pid, client.pid)["connections"]}
        self.assertEqual((both[client.pid]["ring_to_peer"], both[server.pid]["ring_to_read"]), (12345, 12345))
        self.assertEqual(both[server.pid]["ring_to_peer"], 0)
        self.assertGreater(both[client.pid]["sent"]["bells_rung"], 0)
        self.assertEqual(server.tell("read", 12345), "done")
        both = {end["pid"]: end for end in snapshot(server.pid, client.pid)["connections"]}
        self.assertEqual(both[server.pid]["ring_to_read"], 0)
        self.assertIn("shm; shared memory", ddpstat("--detail", server.pid).stdout)

    def test_redis(self):
        if not shutil.which("redis-server") or not shutil.which("redis-cli"):
            self.skipTest("redis is not installed")
        for engine in "user", "shm":
            with self.subTest(engine=engine):
                self.check_redis(engine)

    def check_redis(self, engine):
        self.loading = self.load(engine)
        path = os.path.join(self.folder, engine)
        server = Program(self, command=("redis-server", "--port", "0", "--unixsocket", path, "--save", ""))
        eventually(lambda: os.path.exists(path))
        # A port of the kernel's choice is not in redis's power, so one that was free a moment ago is taken.
        probe = socket.create_server(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
        probe.close()
        subprocess.run(["redis-cli", "-s", path, "config", "set", "port", port], check=True, capture_output=True, timeout=SECONDS)
        client = Program(self, command=("redis-cli", "-p", port))
        for i in range(50):
            self.assertEqual(client.tell("set", f"key{i:02}", "value"), "OK")
        end, other = server.connection(), client.connection()
        self.assertEqual((end["program"], end["engine"], other["engine"]), ("redis-server", engine, engine))
        self.assertEqual(end["received"]["bytes"], other["sent"]["bytes"])
        self.assertEqual(end["sent"]["bytes"], other["received"]["bytes"])
        self.assertGreater(other["sent"]["bytes"], 50 * len("*3\r\n$3\r\nset\r\n$5\r\nkey00\r\n$5\r\nvalue\r\n") - 1)

    def test_a_connection_that_ends_is_gone(self):
        server, client, _ = self.pair("user")
        self.exchange(server, client, 10, 1)
        self.assertEqual(client.tell("close"), "done")
        self.assertEqual(client.connections(), [])
        self.assertIn("no connection in DDPMODE", ddpstat(client.pid).stdout)

    def test_a_killed_process_is_gone(self):
        server, client, _ = self.pair("shm")
        self.exchange(server, client, 10, 3)
        self.assertEqual(len(client.connections()), 1)
        client.process.send_signal(signal.SIGKILL)
        client.process.wait()
        found = snapshot(client.pid)
        self.assertEqual((found["processes"], found["connections"]), ([], []))
        self.assertEqual(ddpstat(client.pid).returncode, 1)
        self.assertEqual(os.listdir(self.folder), [f"ddpsock-{os.geteuid()}"], "nothing but the registry")

    def test_a_forked_child_holds_it_too(self):
        fifo = os.path.join(self.folder, "fifo")
        os.mkfifo(fifo)
        server = Program(self, "serve", fifo)
        client = Program(self, server.line())
        self.assertEqual((client.line(), server.line()), ("ready", "ready"))
        self.exchange(server, client, 10, 1)
        child = int(server.tell("fork"))
        self.assertEqual(server.line(), "done")
        found = snapshot(server.pid, child)
        self.assertEqual(len(found["connections"]), 1)
        self.assertEqual(sorted(found["connections"][0]["holders"]), sorted([server.pid, child]))
        server.process.kill()
        server.process.wait()
        # The family lives on in the child.
        self.assertEqual(snapshot(child)["connections"][0]["holders"], [child])
        with open(fifo, "w"):
            pass
        eventually(lambda: not snapshot(child)["processes"])

    def test_an_executed_program_goes_on(self):
        server, client, _ = self.pair("shm")
        self.exchange(server, client, 10, 3)
        self.assertEqual(client.tell("exec"), "ready")
        self.assertEqual(client.tell("write", 70), "done")
        self.assertEqual(server.tell("read", 70), "done")
        here = client.connection()
        self.assertEqual((here["pid"], here["engine"], here["sent"]["bytes"]), (client.pid, "user", 100))
        self.assertEqual(here["memory"], "left shared memory for a program that was executed")

    def test_a_program_that_closes_every_descriptor_is_told_of(self):
        server, client, _ = self.pair("user")
        self.exchange(server, client, 10, 1)
        self.assertEqual(client.tell("closefds"), "done")
        found = snapshot(client.pid)["processes"]
        self.assertEqual(len(found), 1)
        # Either the library has kept its descriptor, or it is said that there is none.
        self.assertTrue(found[0]["connections"] == 1 or "descriptor" in found[0]["obstacle"], found)

    def test_plain_connections_are_counted_with_their_reason(self):
        server, client, _ = self.pair("user")
        self.exchange(server, client, 10, 1)
        self.assertEqual(snapshot(client.pid)["processes"][0]["plain"], 0)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            for _ in range(2):
                self.assertEqual(client.tell("plain", listening.getsockname()[1]), "done")
        row = snapshot(client.pid)["processes"][0]
        self.assertEqual((row["plain"], row["plain_reason"]), (2, "the listener on this host is not in DDPMODE"))
        self.assertIn("2 plain so far, the last: the listener on this", ddpstat(client.pid).stdout)

    def test_a_process_without_connections(self):
        server = Program(self, "serve")
        server.line()
        found = snapshot(server.pid)
        self.assertEqual((len(found["processes"]), found["connections"]), (1, []))
        self.assertEqual(found["processes"][0]["obstacle"], "")

    def test_another_user_sees_nothing(self):
        if os.geteuid() != 0:
            self.skipTest("only root can become another user")
        server, client, port = self.pair("user")
        self.exchange(server, client, 10, 1)
        copy = shutil.copy(DDPSTAT, self.folder)
        seen = subprocess.run([copy, "--json"], capture_output=True, text=True, timeout=SECONDS, user=NOBODY, group=NOBODY,
                              extra_groups=[])
        self.assertEqual(seen.returncode, 0, seen)
        self.assertFalse({server.pid, client.pid} & {p["pid"] for p in json.loads(seen.stdout)["processes"]})
        self.assertNotIn(port, seen.stdout)
        # Nor does root see others.
        other = subprocess.Popen([*self.loading, PYTHON, "-c", PROGRAM, "serve"], env=self.environment, user=NOBODY,
                                 group=NOBODY, extra_groups=[], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            other.stdout.readline()
            self.assertEqual(snapshot(other.pid)["processes"], [])
        finally:
            other.kill()
            other.communicate()


class Messages(Case):
    def messages(self, progress="thread", *words):
        server = Program(self, command=(PYTHON, "-c", MESSAGES, "serve", progress, *words))
        port = server.line()
        client = Program(self, command=(PYTHON, "-c", MESSAGES, port, progress))
        self.assertEqual(client.line(), "ready")
        self.assertEqual(server.line(), "ready")
        return server, client, port

    def tell(self, program, *words):
        self.assertEqual(program.tell(*words), "done")

    def test_what_a_connection_does(self):
        for engine in "user", "shm":
            with self.subTest(engine=engine):
                self.check_what_a_connection_does(engine)

    def check_what_a_connection_does(self, engine):
        self.loading = self.load(engine)
        server, client, port = self.messages()
        # An initiator that has heard nothing yet sends more than it is told to.
        self.tell(client, "receive", 64)
        self.tell(server, "send", 1)
        self.tell(client, "take", 1)
        self.tell(server, "take", 1)
        for size in 64, 4096, 4096:
            self.tell(server, "receive", size)
        self.tell(client, "send", 10)
        self.tell(client, "send", 4000)
        self.tell(client, "take", 2)
        self.tell(server, "take", 2)
        here, there = client.connection(), server.connection()
        for end in here, there:
            self.assertEqual((end["mode"], end["engine"], end["state"], end["verdict"]), ("message", engine, "open", "ddp"))
            self.assertEqual((end["reason"], end["holders"]), ("the program asked for messages", [end["pid"]]))
            self.assertEqual((end["mpa_revision"], end["has_crc"]), (2, True))
            self.assertIn(end["messages"]["progress"], ("io_uring", "epoll"))
            self.assertGreater(end["max_payload"], 500)
            self.assertIsNone(end["sent"]["system_calls"])
            self.assertIsNone(end["messages"]["terminate"])
        self.assertEqual((here["peer"], there["local"]), (f"127.0.0.1:{port}", f"127.0.0.1:{port}"))
        self.assertEqual(here["local"], there["peer"])
        self.assertEqual((here["role"], there["role"]), ("initiator", "responder"))
        self.assertEqual((here["sent"]["bytes"], there["received"]["bytes"], there["sent"]["bytes"]), (4010, 4010, 1))
        self.assertEqual(here["sent"]["fpdus"], there["received"]["fpdus"])
        # Memory needs none.
        self.assertEqual(there["crcs_checked"], there["received"]["fpdus"] if engine == "user" else 0)
        self.assertEqual(here["messages"]["sends"], {"posted": 2, "completed": 2, "outstanding": 0, "failed": 0})
        self.assertEqual(there["messages"]["receives"], {"posted": 3, "completed": 2, "outstanding": 1, "failed": 0})
        detail = ddpstat("--detail", server.pid).stdout
        for part in "mode      message", f"engine    {engine}; ", f"progress  {here['messages']['progress']}", "outstanding":
            self.assertIn(part, detail)
        self.assertNotIn("spins", detail)
        self.assertIn("message", ddpstat(server.pid).stdout)

    def test_a_connection_that_its_caller_drives(self):
        server, client, _ = self.messages("caller")
        self.assertEqual(client.connection()["messages"]["progress"], "caller")

    def test_a_terminate(self):
        server, client, _ = self.messages()
        self.tell(server, "receive", 10)
        self.tell(client, "send", 100)
        self.tell(server, "take", 2)
        self.tell(client, "take", 2)
        here, there = client.connection(), server.connection()
        for end in here, there:
            self.assertEqual((end["state"], end["verdict"]), ("failed", "failed"))
            self.assertNotEqual(end["reason"], "")
            # DDP, untagged buffer, message too long.
            self.assertEqual(end["messages"]["terminate"], 1 << 24 | 1 << 16 | 2 << 8 | 5)
        self.assertEqual(there["messages"]["receives"]["failed"], 1)
        self.assertEqual(there["received"]["errors"], 1)
        self.assertIn("failed: " + here["reason"], ddpstat(client.pid).stdout)
        self.assertIn("Terminate layer 1, type 2, code 5", ddpstat("--detail", client.pid).stdout)

    def test_the_end(self):
        server, client, _ = self.messages()
        self.tell(client, "close")
        self.assertEqual(client.connections(), [])
        self.tell(server, "take", 1)
        self.assertEqual(server.connection()["state"], "ended")
        server.process.kill()
        server.process.wait()
        self.assertEqual(snapshot(server.pid)["processes"], [])

    def test_a_forked_child_has_it_until_it_closes(self):
        fifo = os.path.join(self.folder, "fifo")
        os.mkfifo(fifo)
        server, client, _ = self.messages("thread", fifo)
        child = int(server.tell("fork"))
        self.assertEqual(server.line(), "done")
        self.assertEqual(sorted(snapshot(server.pid)["connections"][0]["holders"]), sorted([server.pid, child]))
        with open(fifo, "w"):
            pass
        eventually(lambda: snapshot(server.pid)["connections"][0]["holders"] == [server.pid])
        self.tell(server, "receive", 64)
        self.tell(client, "send", 10)
        self.tell(server, "take", 1)
        self.assertEqual(server.connection()["received"]["bytes"], 10)
        with open(fifo, "w"):
            pass


class Command(Case):
    def test_refuses_what_makes_no_sense(self):
        for arguments, text in ((["--watch=0"], "--watch"), (["--watch=x"], "--watch"), (["--nonsense"], "--nonsense"),
                                (["--json", "--detail"], "excludes")):
            done = ddpstat(*arguments)
            self.assertEqual(done.returncode, 2, done)
            self.assertIn(text, done.stderr)

    def test_says_when_nothing_is_found(self):
        done = ddpstat("no-such-program")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("no such process or connection", done.stderr)

    def test_says_when_it_cannot_write(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([DDPSTAT], stdout=full, stderr=subprocess.PIPE, text=True, timeout=SECONDS)
        self.assertEqual(done.returncode, 2)
        self.assertIn("No space left", done.stderr)

    def test_watching_prints_one_object_a_line(self):
        server, client, _ = self.pair("user")
        self.exchange(server, client, 10, 1)
        with subprocess.Popen([DDPSTAT, "--json", "--watch=0.1"], stdout=subprocess.PIPE, text=True) as watching:
            counts = []
            for _ in range(3):
                rows = [c for c in json.loads(watching.stdout.readline())["connections"] if c["pid"] == client.pid]
                counts.append(rows[0]["sent"]["bytes"])
                self.exchange(server, client, 10, 1)
            watching.send_signal(signal.SIGINT)
            watching.stdout.read()
            self.assertEqual(watching.wait(SECONDS), 0)
        self.assertEqual(counts, sorted(counts))

    def test_ends_when_nobody_reads(self):
        with subprocess.Popen([DDPSTAT, "--watch=0.1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
            watching.stdout.readline()
            watching.stdout.close()
            self.assertEqual(watching.wait(SECONDS), 0)
            self.assertEqual(watching.stderr.read(), "")

    def test_a_terminal_is_drawn_resized_and_given_back(self):
        server, client, _ = self.pair("user")
        self.exchange(server, client, 10, 1)
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        set_size(slave, 10, 60)
        watching = subprocess.Popen([DDPSTAT, "--watch=3600"], stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                                    preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)
        screen = read_until(master, b"\x1b[J")
        self.assertTrue(screen.startswith(b"\x1b[?1049h\x1b[?25l\x1b[H"), screen)
        self.assertIn(b"connection", screen)
        widths = [len(line) for line in plain_lines(screen)]
        self.assertLessEqual(max(widths), 60)
        self.assertLessEqual(len(widths), 10)
        set_size(master, 30, 200)
        screen = read_until(master, b"\x1b[J")
        self.assertIn(b"WHY", screen)
        os.write(master, b"\x03")
        last = read_until(master, b"\x1b[?1049l")
        self.assertTrue(last.endswith(b"\x1b[?25h\x1b[?1049l"), last)
        self.assertEqual(watching.wait(SECONDS), 0)


def set_size(terminal, rows, columns):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def read_until(terminal, mark):
    seen = b""
    deadline = time.monotonic() + SECONDS
    while mark not in seen:
        if not select.select([terminal], [], [], max(0, deadline - time.monotonic()))[0]:
            raise AssertionError(f"the terminal shows {seen}")
        seen += os.read(terminal, 65536)
    return seen


def plain_lines(screen):
    text = screen.decode()
    for code in ("\x1b[?1049h", "\x1b[?25l", "\x1b[H", "\x1b[K", "\x1b[J"):
        text = text.replace(code, "")
    return text.split("\r\n")


if __name__ == "__main__":
    DDPSTAT, DDPRUN = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1])
