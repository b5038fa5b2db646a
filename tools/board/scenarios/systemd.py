# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Sockets that systemd makes and hands on: to a program for each connection, and to one that gets the listener."""

import pathlib

from stage import PYTHON, digest, expect

PORT = 9190
CAT = "import os, sys\nwhile data := os.read(0, 65536):\n    while data:\n        data = data[os.write(1, data):]\n"
LISTENER = """
import os, socket
assert os.environ["LISTEN_FDS"] == "1"
listener = socket.socket(fileno=3)
while True:
    connection = listener.accept()[0]
    if os.fork() == 0:
        while data := connection.recv(65536):
            connection.sendall(data)
        os._exit(0)
    connection.close()
"""


class Activate:
    def __init__(self, stage):
        self.stage = stage

    def start(self):
        self.data = self.stage.data("data", 4 << 20)

    def finish(self):
        pass

    def talk(self, port):
        talk = pathlib.Path(__file__).resolve().parent.parent / "peers" / "talk.py"
        return self.stage.client(PYTHON, talk, self.stage.address, port, self.data)

    def activate(self, port, *words):
        # It hands on no variable that it is not told to.
        kept = [word for name in ("LD_PRELOAD", "DDPSOCK_RULES", "DDPSOCK_ENGINE") for word in ("-E", name)]
        return self.stage.server("systemd-socket-activate", "-l", f"{self.stage.address}:{port}", *kept, *words, port=port)

    def check_a_listener_that_is_handed_on(self):
        server = self.activate(PORT, PYTHON, "-c", LISTENER)
        for _ in range(3):
            expect(digest(self.talk(PORT)) == digest(self.data), "not the bytes that were sent")
        server.kill()
        server.wait()

    def check_a_program_for_each_connection(self):
        server = self.activate(PORT + 1, "--accept", "--inetd", PYTHON, "-c", CAT)
        for _ in range(3):
            expect(digest(self.talk(PORT + 1)) == digest(self.data), "not the bytes that were sent")
        server.kill()
        server.wait()


PIECES = {"activate": Activate}
