# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Java's three ways to use sockets, each on both sides."""

import pathlib

from stage import expect

PORT = 9290
ECHO = pathlib.Path(__file__).resolve().parent.parent / "peers" / "Echo.java"


class Java:
    way = ""

    def __init__(self, stage):
        self.stage = stage

    def start(self):
        self.stage.plain("javac", "-d", self.stage.folder, ECHO, seconds=100)
        for path in self.stage.folder.glob("*.class"):
            path.chmod(0o644)
        self.data = self.stage.data("data", 4 << 20)
        self.java = ["java", "-XX:+UseSerialGC", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-cp", self.stage.folder, "Echo"]
        self.server = self.stage.server(*self.java, "server", self.way, self.stage.address, PORT, port=PORT)

    def finish(self):
        self.stage.stop(self.server)

    def talk(self, way):
        said = self.stage.client(*self.java, "client", way, self.stage.address, PORT, self.data)
        expect(said == b"as it was sent\n", said.decode(errors="replace"))

    def check_its_own_client(self):
        self.talk(self.way)

    def check_again(self):
        self.talk(self.way)

    def check_the_other_clients(self):
        for way in {"nio", "aio", "blocking"} - {self.way}:
            self.talk(way)


class Nio(Java):
    way = "nio"


class Aio(Java):
    way = "aio"


class Blocking(Java):
    way = "blocking"


PIECES = {"nio": Nio, "aio": Aio, "blocking": Blocking}
