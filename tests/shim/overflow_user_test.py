#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Connections between another user and the user 65534, a name that stands for many in user namespaces: nobody else believes
its word, so neither end may count on it. Whoever speaks first is heard.
usage: overflow_user_test.py [DDPRUN]; without DDPRUN, on plain TCP
"""

import os
import subprocess
import sys
import tempfile
import unittest

OVERFLOW_USER, OTHER_USER = 65534, 12345
LOADING = [os.path.abspath(sys.argv[1]), "--prefer", "--"] if len(sys.argv) > 1 else []
SERVER = """
import socket
with socket.create_server(("127.0.0.1", 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    connection = listener.accept()[0]
    connection.sendall(b"welcome")
    print(connection.recv(100), flush=True)
"""
CLIENT = """
import socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 10)
print(connection.recv(100), flush=True)
connection.sendall(b"thanks")
"""


@unittest.skipIf(os.geteuid() != 0, "only the superuser can be other users")
class OverflowUser(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        os.chmod(folder.name, 0o1777)
        self.environment = os.environ | {"DDPSOCK_REGISTRY_DIR": folder.name}

    def start(self, script, *words, user):
        process = subprocess.Popen([*LOADING, "/usr/bin/python3", "-c", script, *words], stdout=subprocess.PIPE, text=True, user=user,
                                   env=self.environment, cwd="/")
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def talk(self, server_user, client_user):
        server = self.start(SERVER, user=server_user)
        client = self.start(CLIENT, server.stdout.readline().strip(), user=client_user)
        self.assertEqual(client.stdout.readline(), "b'welcome'\n")
        self.assertEqual(server.stdout.readline(), "b'thanks'\n")

    def test_as_client(self):
        self.talk(OTHER_USER, OVERFLOW_USER)

    def test_as_server(self):
        self.talk(OVERFLOW_USER, OTHER_USER)

    def test_as_both(self):
        self.talk(OVERFLOW_USER, OVERFLOW_USER)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
