# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""memcached: threads that share connections out by pipe, large values, many connections."""

import hashlib

from stage import PYTHON, expect

PORT = 11299
CLIENT = """
import hashlib, random, socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
file = connection.makefile("rwb")
draw, total = random.Random(int(sys.argv[3])), hashlib.sha256()
values = {f"{sys.argv[3]}-{n}".encode(): draw.randbytes(draw.choice((10, 1000, 100_000, 1_000_000))) for n in range(60)}
for key, value in values.items():
    file.write(b"set %s 0 0 %d\\r\\n%s\\r\\n" % (key, len(value), value))
    file.flush()
    assert file.readline() == b"STORED\\r\\n"
keys = list(values)
for at in range(0, len(keys), 10):
    some = keys[at:at + 10]
    file.write(b"get " + b" ".join(some) + b"\\r\\n")
    file.flush()
    for key in some:
        header = file.readline().split()
        assert header[1] == key, header
        assert file.read(int(header[3])) == values[key]
        file.readline()
    assert file.readline() == b"END\\r\\n"
file.write(b"quit\\r\\n"); file.flush()
assert file.read() == b""
print("all is there")
"""


class Commands:
    def __init__(self, stage):
        self.stage = stage

    def start(self):
        self.server = self.stage.server("memcached", "-l", self.stage.address, "-p", PORT, "-U", "0", "-u", "root", "-m", "256", "-I", "2m", "-t", "4",
                                        port=PORT)
        self.at = f"--servers={self.stage.address}:{PORT}"

    def finish(self):
        self.stage.stop(self.server)

    def check_values_of_all_sizes(self):
        expect(b"all is there" in self.stage.client(PYTHON, "-c", CLIENT, self.stage.address, PORT, 1), "not all")

    def check_many_clients(self):
        started = [self.stage.start_client(PYTHON, "-c", CLIENT, self.stage.address, PORT, number) for number in range(2, 8)]
        for process in started:
            expect(process.wait(50) == 0, self.stage.said(process))

    def check_copy_and_cat(self):
        data = self.stage.data("value", 500_000)
        self.stage.client("memccp", self.at, data)
        said = self.stage.client("memccat", self.at, "value")
        expect(hashlib.sha256(said[:500_000]).digest() == hashlib.sha256(data.read_bytes()).digest(), "not the bytes that were sent")

    def check_slap(self):
        self.stage.client("memcslap", self.at, "--concurrency=8", "--execute-number=500", "--test=set")
        self.stage.client("memcslap", self.at, "--concurrency=8", "--execute-number=500", "--test=get")

    def check_stats(self):
        expect(b"pid" in self.stage.client("memcstat", self.at), "no statistics")


PIECES = {"commands": Commands}
