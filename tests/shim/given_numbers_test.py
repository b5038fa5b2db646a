#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Connections of clients that have said all they will, so that they cannot be made plain TCP any more, under the numbers that
a program is executed with. One that has not the library reads what the client said, or nothing, and never FPDUs; and what only strayed to a
helper is still the program's to answer on.
usage: given_numbers_test.py [DDPRUN ENGINE]; without DDPRUN, on plain TCP
"""

import os
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

LOADING = [os.path.abspath(sys.argv[1]), "--require", "--engine", sys.argv[2], "--"] if len(sys.argv) > 1 else []
PYTHON = "/usr/bin/python3"

# Executes the wrapper argv[2:] with the first connection as 0, and as 1 where argv[1] has "1", the second as 7, its listener as 8
# and what it may say as 9.
SERVER = """
import fcntl, os, socket, struct, sys, termios, time
def accept():
    connection = listener.accept()[0]
    while struct.unpack("i", fcntl.ioctl(connection, termios.FIONREAD, bytes(4)))[0] < 8:
        time.sleep(.01)
    time.sleep(.05)  # for the end behind it
    return connection
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
os.dup2(1, 9)
first, second = accept(), accept()
os.dup2(first.fileno(), 0)
if "1" in sys.argv[1]:
    os.dup2(first.fileno(), 1)
os.dup2(second.fileno(), 7)
os.dup2(listener.fileno(), 8)
os.execv(sys.argv[2], sys.argv[2:])
"""
CLIENT = """
import socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 10)
connection.sendall(b"request\\n")
connection.shutdown(socket.SHUT_WR)
try:
    print(connection.recv(100), flush=True)
except ConnectionResetError:
    print("reset", flush=True)
"""
CAT = ["/bin/cat"]


def shell(script, numbers="0"):
    return [numbers, "/bin/sh", "-c", script]


def python(script):
    return ["0", PYTHON, "-c", "import os, socket, subprocess, time\n" + script]


class GivenNumbers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        os.chmod(self.folder, 0o1777)

    def start(self, script, *words):
        process = subprocess.Popen([*LOADING, PYTHON, "-c", script, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                   env=os.environ | {"DDPSOCK_REGISTRY_DIR": self.folder}, cwd="/")
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def run_wrapper(self, wrapper, clients=2):
        """What it has said, and what its clients got."""
        server = self.start(SERVER, *wrapper)
        port = server.stdout.readline().decode().strip()
        started = []
        for _ in range(clients):
            started.append(self.start(CLIENT, port))
        said = server.stdout.read()
        server.wait(10)
        return said, [client.stdout.read() for client in started]

    def expect_no_fpdus(self, wrapper, clients=2):
        said, _ = self.run_wrapper(wrapper, clients)
        self.assertIn(said, [b"request\n", b""] if LOADING else [b"request\n"])

    def test_another_connection_in_the_first_ones_place(self):
        self.expect_no_fpdus(python("""
os.close(0)
connection = socket.socket(fileno=8).accept()[0]
assert connection.fileno() == 0
os.set_inheritable(0, True)
time.sleep(.2)
if os.fork() == 0:
    os.dup2(9, 1)
    os.execve("/bin/cat", ["cat"], {})
os.wait()
"""), clients=3)

    def test_put_there_by_posix_spawn(self):
        self.expect_no_fpdus(python("""
actions = [(os.POSIX_SPAWN_DUP2, 7, 0), (os.POSIX_SPAWN_DUP2, 9, 1)]
os.waitpid(os.posix_spawn("/bin/sh", ["sh", "-c", "exec env -i /bin/cat"], os.environ, file_actions=actions), 0)
"""))

    def test_put_there_by_a_vfork_child(self):
        self.expect_no_fpdus(python("""subprocess.run(["/bin/cat"], stdin=7, stdout=9, env={})"""))

    def test_put_there_by_a_vfork_child_for_a_wrapper(self):
        self.expect_no_fpdus(python("""subprocess.run(["/usr/bin/env", "-i", "/bin/cat"], stdin=7, stdout=9)"""))

    def test_put_over_a_listener_by_a_vfork_child(self):
        self.expect_no_fpdus(python("""
os.dup2(8, 0)
subprocess.run(["/bin/cat"], stdin=7, stdout=9, env={})
"""))

    def test_found_under_its_second_number(self):
        self.expect_no_fpdus(shell("LD_PRELOAD= exec /bin/cat <&1 >&9", "01"))

    def test_a_helper_that_it_strays_to(self):
        for redirection in ("", "2>&0", ">&0", "2>&1 >&0"):
            with self.subTest(redirection):
                _, got = self.run_wrapper(shell(f"read line; LD_PRELOAD= /bin/true {redirection}; echo answer >&0"))
                self.assertIn(b"b'answer\\n'\n", got)

    def test_what_posix_spawn_closes_is_not_the_programs(self):
        for actions in ("[(os.POSIX_SPAWN_CLOSE, 7)]", "[(os.POSIX_SPAWN_DUP2, 7, 0), (os.POSIX_SPAWN_CLOSE, 7), (os.POSIX_SPAWN_CLOSE, 0)]",
                        "[(os.POSIX_SPAWN_DUP2, 7, 0), (os.POSIX_SPAWN_CLOSE, 7), (os.POSIX_SPAWN_OPEN, 0, '/dev/null', os.O_RDONLY, 0)]"):
            with self.subTest(actions):
                _, got = self.run_wrapper(python(f"""
os.waitpid(os.posix_spawn("/bin/true", ["true"], {{}}, file_actions={actions}), 0)
os.write(7, b"answer")
"""))
                self.assertIn(b"b'answer'\n", got)

    def test_a_helper_that_has_it_twice(self):
        for spawn in ("""subprocess.run(["/usr/bin/env", "-i", "/bin/true"], stdin=0, stdout=0)""",
                      """os.waitpid(os.posix_spawn("/usr/bin/env", ["env", "-i", "/bin/true"], os.environ, file_actions=[
    (os.POSIX_SPAWN_DUP2, 0, 15), (os.POSIX_SPAWN_DUP2, 15, 0), (os.POSIX_SPAWN_DUP2, 15, 1)]), 0)"""):
            with self.subTest(spawn):
                _, got = self.run_wrapper(python(f"{spawn}\nos.write(0, b'answer')\n"))
                self.assertIn(b"b'answer'\n", got)

    def test_an_exec_that_fails(self):
        with open(os.path.join(self.folder, "text"), "wb") as file:
            file.write(b"no kernel runs this\n")
        with open(os.path.join(self.folder, "archive"), "wb") as file:
            file.write(b"PK\3\4\0\0\0\0")
        for name in ("text", "archive"):
            path = os.path.join(self.folder, name)
            os.chmod(path, 0o755)
            for function in ("posix_spawn", "posix_spawnp"):
                with self.subTest(name=name, function=function):
                    if name == "archive" and os.path.exists("/proc/sys/fs/binfmt_misc/register"):
                        self.skipTest("the kernel may know what runs it")
                    _, got = self.run_wrapper(python(f"""
try:
    os.{function}({path!r}, ["x"], {{}}, file_actions=[(os.POSIX_SPAWN_DUP2, 7, 0)])
except OSError:
    os.write(7, b"500 none")
"""))
                    self.assertIn(b"b'500 none'\n", got)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
