# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Servers that tell everybody what one says: ngIRCd, and ncat as broker and as chat."""

from stage import PYTHON, digest, expect

PORT = 6670
CONFIG = """[Global]
Name = irc.board.example
Info = board
Listen = {address}
Ports = {port}
ServerUID = nobody
ServerGID = nogroup
[Limits]
MaxConnectionsIP = 0
MaxPenaltyTime = 0
[Options]
DNS = no
Ident = no
PAM = no
SyslogFacility = local1
ChrootDir =
"""
CHATTERS = """
import socket, sys
count, lines = 8, 40
def chatter(number):
    file = socket.create_connection((sys.argv[1], int(sys.argv[2]))).makefile("rw", encoding="latin-1", newline="\\r\\n")
    print(f"NICK chat{number}\\nUSER chat{number} 0 * :x", file=file, flush=True)
    return file
def until(file, words):
    while words not in (line := file.readline()):
        assert line, words
        if line.startswith("PING"):
            print(line.replace("PING", "PONG", 1).strip(), file=file, flush=True)
files = [chatter(number) for number in range(count)]
for file in files:
    until(file, " 001 ")
for file in files:
    print("JOIN #room", file=file, flush=True)
    until(file, " 366 ")
for line in range(lines):
    print(f"PRIVMSG #room :said {line}", file=files[line % count], flush=True)
    for number, file in enumerate(files):
        if number != line % count:
            until(file, f"said {line}")
for file in files:
    print("QUIT", file=file, flush=True)
    while file.readline():
        pass
"""
TALKERS = """
import socket, sys, time
connections = [socket.create_connection((sys.argv[1], int(sys.argv[2]))) for _ in range(6)]
files = [connection.makefile("rb") for connection in connections]
time.sleep(0.5)
for turn in range(30):
    words = b"turn %d\\n" % turn
    connections[turn % 6].sendall(words)
    for number, file in enumerate(files):
        if number != turn % 6:
            while words not in (line := file.readline()):
                assert line
"""


class Rooms:
    def __init__(self, stage):
        self.stage = stage

    def start(self):
        config = self.stage.write("ngircd.conf", CONFIG.format(address=self.stage.address, port=PORT))
        self.server = self.stage.server("ngircd", "-n", "-f", config, port=PORT)

    def finish(self):
        self.stage.stop(self.server)

    def check_eight_that_talk(self):
        self.stage.client(PYTHON, "-c", CHATTERS, self.stage.address, PORT)


class Lines:
    def __init__(self, stage):
        self.stage = stage

    def start(self):
        self.server = self.stage.server("ncat", "-l", "--chat", self.stage.address, PORT, port=PORT)
        self.broker = self.stage.server("ncat", "-l", "--broker", self.stage.address, PORT + 1, port=PORT + 1)

    def finish(self):
        self.stage.stop(self.server)
        self.stage.stop(self.broker)

    def check_six_that_talk(self):
        self.stage.client(PYTHON, "-c", TALKERS, self.stage.address, PORT)

    def check_six_at_a_broker(self):
        self.stage.client(PYTHON, "-c", TALKERS, self.stage.address, PORT + 1)

    def check_a_file(self):
        data, copy = self.stage.data("data", 3_000_000), self.stage.folder / "copy"
        with open(copy, "wb") as file:
            server = self.stage.server("ncat", "-l", "--recv-only", self.stage.address, PORT + 2, port=PORT + 2, stdout=file)
        self.stage.client("ncat", "--send-only", self.stage.address, PORT + 2, input=data.read_bytes())
        expect(server.wait(10) == 0 and digest(copy) == digest(data), "not the bytes that were sent")


PIECES = {"rooms": Rooms, "lines": Lines}
