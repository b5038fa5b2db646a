#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Programs that their user may execute and not read, as some systems have sudo: whether the library will be in one cannot be
seen. A client that has said all it will cannot be made plain TCP any more, and the program gets what it said, or nothing.
usage: unreadable_program_test.py [DDPRUN ENGINE]; without DDPRUN, on plain TCP
"""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

USER = 12345
LOADING = [os.path.abspath(sys.argv[1]), "--require", "--engine", sys.argv[2], "--"] if len(sys.argv) > 1 else []
SERVER = """
import fcntl, os, socket, struct, subprocess, sys, termios, time
with socket.create_server(("127.0.0.1", 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    connection = listener.accept()[0]
while struct.unpack("i", fcntl.ioctl(connection, termios.FIONREAD, bytes(4)))[0] < 7:
    time.sleep(.01)
time.sleep(.05)  # for the end behind it
print(subprocess.run(sys.argv[1:], stdin=connection, stdout=subprocess.PIPE).stdout, flush=True)
"""
CLIENT = """
import socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 10)
connection.sendall(b"request")
connection.shutdown(socket.SHUT_WR)
try:
    connection.recv(1)
except ConnectionResetError:
    pass
"""


@unittest.skipIf(os.geteuid() != 0, "only the superuser reads what it may not")
class UnreadableProgram(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        os.chmod(self.folder, 0o1777)

    def start(self, script, *words):
        process = subprocess.Popen([*LOADING, "/usr/bin/python3", "-c", script, *words], stdout=subprocess.PIPE, text=True, user=USER,
                                   group=USER, env=os.environ | {"DDPSOCK_REGISTRY_DIR": self.folder}, cwd="/")
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def read_by(self, mode):
        """What cat of this mode read."""
        program = shutil.copyfile("/bin/cat", os.path.join(self.folder, "cat"))
        os.chmod(program, mode)
        server = self.start(SERVER, program)
        client = self.start(CLIENT, server.stdout.readline().strip())
        read = server.stdout.readline()
        self.assertEqual(client.wait(10), 0)
        return read

    def test_of_the_users_own_rights(self):
        self.assertEqual(self.read_by(0o711), "b'request'\n")

    def test_of_anothers_rights(self):
        self.assertEqual(self.read_by(0o4711), "b''\n" if LOADING else "b'request'\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
