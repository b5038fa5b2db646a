#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What becomes of listeners: they go to programs that know nothing of the library, which must never read a byte that
their client has not written; and they stay with programs that know, whoever opened them, and are proved then.
usage: listener_fates_test.py FOLDER_OF_CHILDREN [DDPRUN ENGINE]; without DDPRUN, on plain TCP

Run with the arguments `play TASK ...` it is a program of a test.
"""

import array
import ctypes
import os
import resource
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest

PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable  # for all users
THIS = os.path.abspath(__file__)
SOL_DDP, DDP_ENGINE = 0x44445000, 2
NOBODY = 65533


def without_library():
    return {k: v for k, v in os.environ.items() if k != "LD_PRELOAD" and not k.startswith("DDPSOCK_")}


# The programs.


def engine_of(connection):
    try:
        return connection.getsockopt(SOL_DDP, DDP_ENGINE, 16).split(b"\0")[0].decode() or "plain"
    except OSError:
        return "plain"


def say(*words):
    print(*words, flush=True)


def open_listener():
    listener = socket.create_server(("127.0.0.1", 0))
    say("port", listener.getsockname()[1])
    return listener


def serve_one(listener):
    connection = listener.accept()[0]
    with connection:
        word = connection.recv(5, socket.MSG_WAITALL)
        say("read", "".join(chr(c) if 32 <= c < 127 else "?" for c in word))
        if word == b"hello":
            connection.sendall(b"world")
        say("engine", engine_of(connection))


def client(port):
    with socket.create_connection(("127.0.0.1", int(port)), timeout=8) as connection:
        connection.sendall(b"hello")
        word = connection.recv(5, socket.MSG_WAITALL)
        say("answer", word.decode(errors="replace"))
        say("engine", engine_of(connection))


def listening_client(port):
    """Of a server that speaks first."""
    with socket.create_connection(("127.0.0.1", int(port)), timeout=8) as connection:
        say("heard", connection.recv(5, socket.MSG_WAITALL).decode(errors="replace"))
        connection.sendall(b"world")
        say("engine", engine_of(connection))


def connect_only(port):
    """Until the listener closes, which never reads."""
    begin = time.monotonic()
    with socket.create_connection(("127.0.0.1", int(port))) as connection:
        say("connected", "at once" if time.monotonic() - begin < 5 else "late")
        sys.stdin.read()


def accept_passed(path):
    """A program that is handed a listener."""
    with socket.socket(socket.AF_UNIX) as way:
        way.connect(path)
        _, fds, _, _ = socket.recv_fds(way, 1, 1)
        say("ready")
        serve_one(socket.socket(fileno=fds[0]))


def held_on(listener):
    """The opener lives on, and does not accept."""
    sys.stdin.read()
    listener.close()


def start_child(child, how):
    """`child` is a program beside the tests; `how`, a way to start it with descriptor `fd`."""
    with open_listener() as listener:
        fd = listener.fileno()
        os.set_inheritable(fd, True)
        command = [child, str(fd)]
        if how == "exec":
            os.execv(child, command)
        elif how == "exec, no preload":
            os.execve(child, command, without_library())
        elif how == "exec, path":
            os.environ["PATH"] = os.path.dirname(child) + ":" + os.environ["PATH"]
            os.execvp(os.path.basename(child), command)
        elif how == "fork":
            if os.fork() == 0:
                os.execv(child, command)
        elif how == "vfork":
            subprocess.Popen(command, close_fds=False)
        elif how == "vfork, no preload":
            subprocess.Popen(command, close_fds=False, env=without_library())
        elif how == "spawn":
            os.posix_spawn(child, command, os.environ)
        elif how == "spawn, no preload":
            os.posix_spawn(child, command, without_library())
        elif how == "spawn, as another number":
            os.set_inheritable(fd, False)
            os.posix_spawn(child, [child, "77"], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, fd, 77)])
        elif how == "spawn, path":
            os.environ["PATH"] = os.path.dirname(child) + ":" + os.environ["PATH"]
            os.posix_spawnp(os.path.basename(child), command, os.environ)
        elif how == "shell":
            subprocess.Popen(["sh", "-c", f"true; exec {child} {fd}"], close_fds=False)
        elif how == "shell, not executed":
            subprocess.Popen(["sh", "-c", f"{child} {fd}; true"], close_fds=False)
        elif how == "system":
            if os.fork() == 0:
                ctypes.CDLL(None).system(f"{child} {fd}".encode())
                os._exit(0)
        elif how == "system, no preload":
            if os.fork() == 0:
                os.environ.pop("LD_PRELOAD", None)
                ctypes.CDLL(None).system(f"{child} {fd}".encode())
                os._exit(0)
        elif how == "script":
            with tempfile.NamedTemporaryFile("w", suffix=".sh", delete=False) as script:
                script.write(f"#!{child} {fd}\n")
            os.chmod(script.name, 0o700)
            if os.fork() == 0:
                os.execv(script.name, [script.name])
        held_on(listener)


def pass_on(path, how, to=""):
    """The listener goes through a UNIX socket to another program."""
    with socket.socket(socket.AF_UNIX) as rendezvous:
        rendezvous.bind(path)
        rendezvous.listen()
        listener = open_listener()
        child = subprocess.Popen([PYTHON, THIS, "play", "accept_passed", path],
                                 env=None if to else without_library())
        way = rendezvous.accept()[0]
        socket.send_fds(way, [b"x"], [listener.fileno()])
        if how == "and closed":
            listener.close()
        sys.stdin.read()
        child.wait()


def refuse_to_pass():
    """Passing fails: nothing has left."""
    listener = open_listener()
    ends = socket.socketpair(socket.AF_UNIX)
    ends[1].close()
    try:
        socket.send_fds(ends[0], [b"x"], [listener.fileno()])
    except OSError:
        say("refused")
    try:
        os.execve("/nonexistent", ["x"], without_library())
    except OSError:
        say("refused")
    serve_one(listener)


def closed_by_opener():
    """A child serves what its parent has opened and closed."""
    with open_listener() as listener:
        if os.fork() == 0:
            sys.stdin.read(1)
            serve_one(listener)
            os._exit(0)
    sys.stdin.read()
    os.wait()


def closed_and_idle():
    """As before, and the child never reads."""
    with open_listener() as listener:
        if os.fork() == 0:
            listener.accept()
            sys.stdin.read()
            os._exit(0)
    sys.stdin.read()
    os.wait()


def inherited(fd, how):
    """A program of the library that a plain one has started with its listener."""
    listener = socket.socket(fileno=int(fd))
    if how == "epoll":
        with select.epoll() as poller:
            poller.register(listener, select.EPOLLIN)
            say("ready")
            for _ in range(2):
                poller.poll()
                serve_one(listener)
    else:
        listener.setblocking(False)
        try:
            listener.accept()
        except BlockingIOError:
            pass
        listener.setblocking(True)
        say("ready")
        serve_one(listener)


def take_the_last(turn):
    """Accepts with the last descriptor that it may have, and speaks first or second."""
    listener = open_listener()
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    for _ in range(2):
        connection = listener.accept()[0]
        if turn == "first":
            connection.sendall(b"world")
        say("read", connection.recv(5, socket.MSG_WAITALL).decode(errors="replace"))
        if turn == "second":
            connection.sendall(b"world")
        connection.close()


def other_root(listeners_registry, own_registry, how):
    """Executes itself where there is another registry, with a listener of before."""
    os.environ["DDPSOCK_REGISTRY_DIR"] = listeners_registry
    listener = open_listener()
    os.set_inheritable(listener.fileno(), True)
    os.environ["DDPSOCK_REGISTRY_DIR"] = own_registry
    os.execv(PYTHON, [PYTHON, THIS, "play", "serve_inherited", str(listener.fileno()), how])


def serve_inherited(fd, how):
    listener = socket.socket(fileno=int(fd))
    if how == "used before":  # known here, and said to be nobody's
        listener.setblocking(False)
        try:
            listener.accept()
        except BlockingIOError:
            pass
        listener.setblocking(True)
    say("ready")
    serve_one(listener)


def changed_root(folder, how):
    """Listens, and accepts where nothing is, as servers of mail do."""
    listener = open_listener()
    if how == "executed":
        os.set_inheritable(listener.fileno(), True)
        os.execv(PYTHON, [PYTHON, THIS, "play", "greet_in_changed_root", folder, str(listener.fileno())])
    greet_in_changed_root(folder, listener.detach())


def greet_in_changed_root(folder, fd):
    listener = socket.socket(fileno=int(fd))
    os.chroot(folder)
    for _ in range(2):
        with listener.accept()[0] as connection:
            connection.sendall(b"hello")
            say("read", connection.recv(5, socket.MSG_WAITALL).decode(errors="replace"))


def changed_user(how):
    """Opens a socket as the superuser and listens as another."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if how == "effective":
            os.seteuid(NOBODY)
        listener.listen()
        say("port", listener.getsockname()[1])
        serve_one(listener)


def act_as_another():
    """Opens everything as another user, who can truncate what he owns."""
    os.seteuid(NOBODY)
    for _ in range(3):
        with open_listener() as listener:
            serve_one(listener)
        sys.stdin.readline()


# The tests.


class Fates(unittest.TestCase):
    action, unproved = "--prefer", "plain"

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="ddpsock-test-")
        os.chmod(self.folder, 0o1777)
        self.addCleanup(shutil.rmtree, self.folder)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("DDPSOCK_")}
        self.env["DDPSOCK_REGISTRY_DIR"] = self.folder

    def start(self, *words, is_plain=False, fds=()):
        command = [PYTHON, THIS, "play", *map(str, words)]
        if DDPRUN and not is_plain:
            command = [DDPRUN, self.action, "--engine", ENGINE, "--", *command]
        process = subprocess.Popen(command, env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   text=True, cwd="/", pass_fds=fds)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stdin.close)
        return process

    def expect_line(self, process, beginning):
        line = process.stdout.readline()
        self.assertTrue(line.startswith(beginning), (line, beginning))
        return line.split()[-1]

    def meet(self, port, server, engine):
        """A client of `port`, and what `server` says it has read."""
        asking = self.start("client", port)
        self.expect_line(server, "read hello")
        self.expect_line(asking, "answer world")
        self.assertEqual(self.expect_line(asking, "engine"), engine if DDPRUN else "plain")


class Escaped(Fates):
    """The program that accepts does not know of the library."""

    def leave(self, child, how):
        opener = self.start("start_child", os.path.join(CHILDREN, child), how)
        port = self.expect_line(opener, "port")
        self.expect_line(opener, "ready")
        self.meet(port, opener, "plain")

    def test_static_program(self):
        for how in ("exec", "exec, path", "fork", "vfork", "spawn", "spawn, as another number", "spawn, path", "shell",
                    "shell, not executed", "system", "script"):
            with self.subTest(how=how):
                self.leave("shim_listener_child_static", how)

    def test_without_preload(self):
        for how in "exec, no preload", "vfork, no preload", "spawn, no preload", "system, no preload":
            with self.subTest(how=how):
                self.leave("shim_listener_child", how)

    def test_passed_to_a_plain_program(self):
        for how in "and kept", "and closed":
            with self.subTest(how=how):
                path = os.path.join(self.folder, "way " + how)
                opener = self.start("pass_on", path, how)
                port = self.expect_line(opener, "port")
                self.expect_line(opener, "ready")
                self.meet(port, opener, "plain")


class Kept(Fates):
    """The program that accepts knows of the library."""

    def test_program_with_the_library(self):
        for how in "exec", "fork", "vfork", "spawn", "shell", "system":
            with self.subTest(how=how):
                opener = self.start("start_child", os.path.join(CHILDREN, "shim_listener_child"), how)
                port = self.expect_line(opener, "port")
                self.expect_line(opener, "ready")
                self.meet(port, opener, ENGINE)

    def test_what_did_not_leave(self):
        opener = self.start("refuse_to_pass")
        port = self.expect_line(opener, "port")
        self.expect_line(opener, "refused")
        self.expect_line(opener, "refused")
        self.meet(port, opener, ENGINE)

    def test_closed_by_its_opener(self):
        opener = self.start("closed_by_opener")
        port = self.expect_line(opener, "port")
        opener.stdin.write("x")
        opener.stdin.close()
        self.meet(port, opener, ENGINE)

    def test_inherited_from_a_plain_program(self):
        for how in "accept", "epoll":
            with self.subTest(how=how), socket.create_server(("127.0.0.1", 0)) as listener:
                server = self.start("inherited", listener.fileno(), how, fds=[listener.fileno()])
                self.expect_line(server, "ready")
                if how == "epoll":  # only accept shows who accepts
                    self.meet(listener.getsockname()[1], server, self.unproved)
                    self.expect_line(server, "engine")
                self.meet(listener.getsockname()[1], server, ENGINE)

    @unittest.skipIf(os.geteuid() != 0, "needs the superuser to change the root")
    def test_accepted_in_a_changed_root(self):
        empty = os.path.join(self.folder, "empty")
        os.mkdir(empty)
        for how in "as it is", "executed":
            with self.subTest(how=how):
                server = self.start("changed_root", empty, how)
                port = self.expect_line(server, "port")
                for _ in range(2):
                    asking = self.start("listening_client", port)
                    self.expect_line(asking, "heard hello")
                    self.expect_line(server, "read world")
                    engine = self.expect_line(asking, "engine")
                    self.assertEqual(engine, "user" if DDPRUN else "plain")

    @unittest.skipIf(os.geteuid() != 0, "needs the superuser to become another")
    def test_opened_as_another_user(self):
        server = self.start("changed_user", "effective")
        self.meet(self.expect_line(server, "port"), server, "user")

    @unittest.skipIf(os.geteuid() != 0, "needs the superuser to become another")
    def test_opened_while_acting_as_another_user(self):
        theirs = os.path.join(self.folder, f"ddpsock-{NOBODY}")
        server = self.start("act_as_another")
        for size, engine in (0, "user"), (4096, "user"), (None, self.unproved):
            self.meet(self.expect_line(server, "port"), server, engine)
            self.expect_line(server, "engine")
            if DDPRUN and size is not None:
                os.truncate(theirs, size)
            server.stdin.write("\n")
            server.stdin.flush()
        self.assertEqual(server.wait(), 0)


class LastDescriptor(Fates):
    def test_accept_takes_it(self):
        for turn in "first", "second":
            with self.subTest(turn=turn):
                server = self.start("take_the_last", turn)
                port = self.expect_line(server, "port")
                for _ in range(2):
                    asking = self.start("client", port)
                    self.expect_line(server, "read hello")
                    self.expect_line(asking, "answer world")


class OtherRegistry(Fates):
    """As in a changed root or another mount namespace: the accepting program does not find its client's word."""

    def test_client_of_the_registry_before(self):
        empty = os.path.join(self.folder, "empty")
        os.mkdir(empty)
        for registry in empty, "/nonexistent":
            for how in "not used before", "used before":
                with self.subTest(registry=registry, how=how):
                    server = self.start("other_root", self.folder, registry, how)
                    port = self.expect_line(server, "port")
                    self.expect_line(server, "ready")
                    self.meet(port, server, "user")


class Arrived(Fates):
    def test_passed_to_a_program_with_the_library(self):
        path = os.path.join(self.folder, "way")
        opener = self.start("pass_on", path, "and kept", "with the library")
        port = self.expect_line(opener, "port")
        self.expect_line(opener, "ready")
        self.meet(port, opener, ENGINE)


class Required(Kept):
    """The same, and a client that is told to speak DDP waits for nobody's answer where it can be proved."""
    action, unproved = "--require", "user"

    def test_nobody_reads(self):
        opener = self.start("closed_and_idle")
        port = self.expect_line(opener, "port")
        asking = self.start("connect_only", port)
        self.expect_line(asking, "connected at once")


if __name__ == "__main__":
    if sys.argv[1] == "play":
        globals()[sys.argv[2]](*sys.argv[3:])
    else:
        CHILDREN = os.path.abspath(sys.argv.pop(1))
        DDPRUN = ENGINE = None
        if len(sys.argv) > 2 and not sys.argv[1].startswith("-"):
            DDPRUN, ENGINE = os.path.abspath(sys.argv.pop(1)), sys.argv.pop(1)
        unittest.main()
