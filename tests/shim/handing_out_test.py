#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A server that accepts connections and hands each to a worker (SCM_RIGHTS) before it says anything on it. Whatever a
client does or does not do, the server goes on, and the next is served.
usage: handing_out_test.py [DDPRUN ENGINE]; without DDPRUN, on plain TCP

Run with the arguments `play TASK ...` it is a program of a test.
"""

import ctypes
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest

THIS = os.path.abspath(__file__)
SOL_DDP, DDP_ENGINE = 0x44445000, 2
LARGE = 300_000  # does not lie unread, and can be sent again, in any engine
MANY = 20


def say(*words):
    print(*words, flush=True)


def is_in_ddp_mode(connection):
    try:
        return connection.getsockopt(SOL_DDP, DDP_ENGINE, 16).split(b"\0")[0] != b""
    except OSError:
        return False


# The programs.


def read_request(connection):
    """A line, its length first."""
    request = b""
    while b"\n" not in request or len(request) < int(request.split(b"\n")[0]):
        piece = connection.recv(65536)
        if not piece:
            break
        request += piece
    return request


def work(way):
    """Answers what comes until nothing does."""
    while fds := socket.recv_fds(way, 1, 1)[1]:
        with socket.socket(fileno=fds[0]) as connection:
            try:
                request = read_request(connection)
                connection.sendall(b"read %d, engine %d\n" % (len(request), is_in_ddp_mode(connection)))
            except OSError:  # its client has gone
                pass
    os._exit(0)


def serve(when):
    """Hands out a connection for each line that it reads. `when`: "at once", or when it has "read" a byte."""
    way, workers = socket.socketpair()
    with socket.create_server(("127.0.0.1", 0), backlog=2 * MANY) as listener:
        if os.fork() == 0:
            way.close()
            listener.close()
            work(workers)
        workers.close()
        say("port", listener.getsockname()[1])
        for _ in sys.stdin:
            connection = listener.accept()[0]
            if when == "read":
                connection.recv(1)
            begin = time.monotonic()
            try:
                socket.send_fds(way, [b"x"], [connection.fileno()])
                say("handed out", time.monotonic() - begin)
            except OSError as error:
                say("failed", error)
            connection.close()


def start_elsewhere(program, folder, connection):
    """As posix_spawn does it where it goes to the program's folder first, which Python does not offer."""
    libc = ctypes.CDLL(None)
    actions = ctypes.create_string_buffer(256)
    libc.posix_spawn_file_actions_init(actions)
    libc.posix_spawn_file_actions_addchdir_np(actions, folder.encode())
    for fd in 0, 1:
        libc.posix_spawn_file_actions_adddup2(actions, connection.fileno(), fd)
    arguments, environment = (ctypes.c_char_p * 2)(program.encode()), (ctypes.c_char_p * 1)()
    error = libc.posix_spawn(ctypes.byref(ctypes.c_int()), program.encode(), actions, None, arguments, environment)
    libc.posix_spawn_file_actions_destroy(actions)
    assert error == 0, os.strerror(error)


def serve_by_program():
    """Starts a program without the library for each line that it reads, as inetd does; it gives back what its client sends."""
    os.chdir("/")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        say("port", listener.getsockname()[1])
        for line in sys.stdin:
            connection = listener.accept()[0]
            connection.set_inheritable(True)
            if line == "elsewhere\n":
                if (child := os.fork()) == 0:
                    listener.close()  # or all that a program might inherit counts as given to it
                    start_elsewhere("./cat", "/bin", connection)
                    os._exit(0)
                os.waitpid(child, 0)
            elif line == "spawn nothing\n":
                try:
                    os.posix_spawn("/tmp", ["tmp"], {})
                except PermissionError:
                    pass
            elif (child := os.fork()) == 0:
                os.dup2(connection.fileno(), 0)
                os.dup2(connection.fileno(), 1)
                try:
                    os.execve("/tmp" if line == "nothing\n" else "/bin/cat", ["cat"], {})
                finally:
                    os._exit(0)
            elif line == "nothing\n":
                os.waitpid(child, 0)
            connection.close()
            say("started", "a program")


def ask(port, size, how=""):
    """A request, once a line says so; what became of it."""
    size = int(size)
    with socket.create_connection(("127.0.0.1", int(port))) as connection:
        say("connected", "in DDPMODE" if is_in_ddp_mode(connection) else "plain")
        for line in sys.stdin:
            try:
                if line == "send\n":
                    connection.sendall((b"%d\n" % size).ljust(size, b"."))
                    if how == "ended":
                        connection.shutdown(socket.SHUT_WR)
                    say("sent")
                else:
                    say("answer", connection.makefile().readline().strip() or "nothing")
            except OSError as error:
                say("answer", error.strerror)


# The tests.


class Programs(unittest.TestCase):
    action = "--prefer"

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="ddpsock-test-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("DDPSOCK_")}
        self.env["DDPSOCK_REGISTRY_DIR"] = self.folder

    def start(self, *words):
        command = [sys.executable, THIS, "play", *map(str, words)]
        if DDPRUN:
            command = [DDPRUN, self.action, "--engine", ENGINE, "--", *command]
        process = subprocess.Popen(command, env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stdin.close)
        return process

    def start_server(self, when="at once"):
        server = self.start("serve", when)
        return server, self.expect(server, "port")

    def start_client(self, port, size=100, how=""):
        client = self.start("ask", port, size, how)
        return client, self.expect(client, "connected")

    def expect(self, process, beginning):
        line = process.stdout.readline().strip()
        self.assertTrue(line.startswith(beginning + " "), (line, beginning))
        return line[len(beginning) + 1:]

    def tell(self, process, word):
        process.stdin.write(word + "\n")
        process.stdin.flush()

    def send(self, client):
        self.tell(client, "send")
        self.assertEqual(client.stdout.readline(), "sent\n")

    def hand_out(self, server):
        self.tell(server, "next")
        return float(self.expect(server, "handed out"))

    def expect_served(self, server, port, size=100, how=""):
        """One that waits for its answer."""
        client, mode = self.start_client(port, size, how)
        self.send(client)
        self.tell(client, "hear")
        self.hand_out(server)
        self.assertEqual(self.expect(client, "answer"), f"read {size}, engine 0")
        return mode

    def expect_answer_or_reset(self, client, size=100):
        """Of the first: never an end, as if nothing had been lost."""
        self.tell(client, "hear")
        served = f"read {size}, engine 0"
        self.assertIn(self.expect(client, "answer"), [served, "Connection reset by peer"] if DDPRUN else [served])


class HandingOut(Programs):
    def meet_others(self, server, port):
        """After the first that the server has handed out nothing depends on what a client does."""
        silent, mode = self.start_client(port)
        self.assertEqual(mode, "plain")
        self.hand_out(server)
        self.send(silent)
        self.tell(silent, "hear")
        self.assertEqual(self.expect(silent, "answer"), "read 100, engine 0")
        self.assertEqual(self.expect_served(server, port, LARGE), "plain")
        self.assertEqual(self.expect_served(server, port, 100, "ended"), "plain")

    def test_one_after_another(self):
        server, port = self.start_server()
        self.assertEqual(self.expect_served(server, port), "in DDPMODE" if DDPRUN else "plain")
        self.meet_others(server, port)

    def test_first_is_silent(self):
        server, port = self.start_server()
        silent, _ = self.start_client(port)
        self.hand_out(server)
        self.tell(silent, "send")
        if not DDPRUN:
            self.assertEqual(silent.stdout.readline(), "sent\n")
            self.expect_answer_or_reset(silent)
        self.meet_others(server, port)

    def test_first_sends_much(self):
        server, port = self.start_server()
        large, _ = self.start_client(port, LARGE)
        self.send(large)
        self.hand_out(server)
        self.expect_answer_or_reset(large, LARGE)
        self.meet_others(server, port)

    def test_first_does_not_listen(self):
        server, port = self.start_server()
        busy, _ = self.start_client(port)
        self.send(busy)
        self.hand_out(server)
        self.expect_answer_or_reset(busy)
        self.meet_others(server, port)

    def test_first_has_ended(self):
        server, port = self.start_server()
        ended, _ = self.start_client(port, 100, "ended")
        self.send(ended)
        self.hand_out(server)
        self.expect_answer_or_reset(ended)
        self.meet_others(server, port)

    def test_many_silent_at_once(self):
        server, port = self.start_server()
        clients = [self.start_client(port)[0] for _ in range(MANY)]
        self.assertLess(sum(self.hand_out(server) for _ in clients), 2)
        for client in clients:
            client.stdin.close()
        self.meet_others(server, port)

    def test_after_reading(self):
        """The server has looked at what it hands out."""
        server, port = self.start_server("read")
        client, _ = self.start_client(port)
        self.send(client)
        self.tell(client, "hear")
        self.hand_out(server)
        self.assertEqual(self.start_client(port)[1], "plain")


class Programming(Programs):
    def test_after_one_that_cannot_return(self):
        server = self.start("serve_by_program")
        port = self.expect(server, "port")
        for is_first in True, False, False:
            client, mode = self.start_client(port, 100, "ended")
            self.assertEqual(mode, "in DDPMODE" if DDPRUN and is_first else "plain")
            self.send(client)  # and its side has ended
            self.tell(server, "next")
            self.expect(server, "started")
            self.tell(client, "hear")
            answer = self.expect(client, "answer")
            if not is_first or not DDPRUN:
                self.assertEqual(answer, "100")


    def test_after_one_that_is_found_elsewhere(self):
        """posix_spawn changes its folder first: the path is not one of the server's."""
        server = self.start("serve_by_program")
        port = self.expect(server, "port")
        for is_first in True, False:
            client, mode = self.start_client(port)
            self.assertEqual(mode, "in DDPMODE" if DDPRUN and is_first else "plain")
            self.send(client)
            self.tell(client, "hear")
            self.tell(server, "elsewhere")
            self.expect(server, "started")
            self.assertEqual(self.expect(client, "answer"), "100")

    def test_after_nothing_that_can_be_executed(self):
        """A folder: the server goes on as it was."""
        for way in "nothing", "spawn nothing":
            server = self.start("serve_by_program")
            port = self.expect(server, "port")
            for _ in range(3):
                client, mode = self.start_client(port)
                self.assertEqual(mode, "in DDPMODE" if DDPRUN else "plain")
                self.tell(server, way)
                self.expect(server, "started")


class Required(Programs):
    """Where plain TCP is not allowed clients go on counting on the listener."""
    action = "--require"

    def test_after_one_that_sends_much(self):
        server, port = self.start_server()
        large, _ = self.start_client(port, LARGE)
        self.send(large)
        self.hand_out(server)
        self.expect_answer_or_reset(large, LARGE)
        self.assertEqual(self.expect_served(server, port), "in DDPMODE" if DDPRUN else "plain")


if __name__ == "__main__":
    if sys.argv[1:2] == ["play"]:
        globals()[sys.argv[2]](*sys.argv[3:])
        sys.exit()
    DDPRUN, ENGINE = sys.argv[1:3] if len(sys.argv) > 1 else (None, None)
    unittest.main(argv=sys.argv[:1])
