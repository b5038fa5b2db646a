# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""dnsmasq asked over TCP, which it answers in a child for each connection."""

from stage import PYTHON, expect

PORT = 5353
CLIENT = """
import socket, struct, sys
def question(number, name):
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    words = struct.pack(">6H", number, 0x0100, 1, 0, 0, 0) + labels + b"\\0" + struct.pack(">2H", 1, 1)
    return struct.pack(">H", len(words)) + words
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
file = connection.makefile("rb")
for number in range(90):
    connection.sendall(question(number, f"host{number}.board.example"))
    answer = file.read(struct.unpack(">H", file.read(2))[0])
    assert struct.unpack(">H", answer[:2])[0] == number and answer[-4:] == bytes((10, 1, number // 256, number % 256)), answer
# A question in two pieces.
words = question(7, "host7.board.example")
connection.sendall(words[:9])
connection.sendall(words[9:])
assert file.read(struct.unpack(">H", file.read(2))[0])[-4:] == bytes((10, 1, 0, 7))
"""


class Names:
    def __init__(self, stage):
        self.stage = stage

    def start(self):
        stage = self.stage
        hosts = stage.write("hosts", "".join(f"10.1.{number // 256}.{number % 256} host{number}.board.example\n" for number in range(300)))
        self.server = stage.server("dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", f"--addn-hosts={hosts}",
                                   f"--port={PORT}", f"--listen-address={stage.address}", "--bind-interfaces", "--user=nobody",
                                   f"--pid-file={stage.folder}/pid", port=PORT)

    def finish(self):
        self.stage.stop(self.server)

    def check_dig(self):
        for number in range(20):
            said = self.stage.client("dig", "+tcp", "+short", "-p", PORT, f"@{self.stage.address}", f"host{number}.board.example")
            expect(said.strip() == f"10.1.0.{number}".encode(), said.decode())

    def check_many_questions_on_one_connection(self):
        self.stage.client(PYTHON, "-c", CLIENT, self.stage.address, PORT)

    def check_many_clients(self):
        started = [self.stage.start_client(PYTHON, "-c", CLIENT, self.stage.address, PORT) for _ in range(8)]
        for process in started:
            expect(process.wait(50) == 0, self.stage.said(process))


PIECES = {"names": Names}
