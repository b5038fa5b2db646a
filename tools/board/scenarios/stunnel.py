# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""stunnel on both sides: TLS around a connection, a thread for each."""

import pathlib

from stage import PYTHON, digest, expect

PLAIN, TLS, ECHO = 8480, 8481, 8482
PEERS = pathlib.Path(__file__).resolve().parent.parent / "peers"
CONFIG = """foreground = yes
pid =
debug = notice
[{name}]
client = {client}
accept = {accept}
connect = {connect}
{more}
"""


class Tunnel:
    def __init__(self, stage):
        self.stage = stage

    def start(self):
        stage = self.stage
        stage.plain("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
                    "/CN=localhost", "-keyout", stage.folder / "key", "-out", stage.folder / "certificate")
        self.data = stage.data("data", 8 << 20)
        stage.server(PYTHON, PEERS / "echo.py", stage.address, ECHO, port=ECHO)
        inner = stage.write("server.conf", CONFIG.format(name="tls", client="no", accept=f"{stage.address}:{TLS}", connect=f"{stage.address}:{ECHO}",
                                                         more=f"cert = {stage.folder}/certificate\nkey = {stage.folder}/key"))
        outer = stage.write("client.conf", CONFIG.format(name="plain", client="yes", accept=f"127.0.0.1:{PLAIN}",
                                                         connect=f"{stage.address}:{TLS}", more=""))
        self.server = stage.server("stunnel4", inner, port=TLS)
        self.near = stage.start_client("stunnel4", outer, port=None if stage.is_elsewhere else PLAIN)
        if stage.is_elsewhere:
            stage.client("sh", "-c", f"until grep -q :{PLAIN:04X} /proc/net/tcp; do sleep 0.1; done")

    def finish(self):
        self.stage.stop(self.near)
        self.stage.stop(self.server)

    def talk(self):
        said = self.stage.client(PYTHON, PEERS / "talk.py", "127.0.0.1", PLAIN, self.data)
        expect(digest(said) == digest(self.data), "not the bytes that were sent")

    def check_bytes_both_ways(self):
        for _ in range(3):
            self.talk()

    def check_many_at_once(self):
        started = [self.stage.start_client(PYTHON, PEERS / "talk.py", "127.0.0.1", PLAIN, self.data) for _ in range(6)]
        for process in started:
            expect(process.wait(50) == 0, self.stage.said(process))
            expect(digest(process.log) == digest(self.data), "not the bytes that were sent")


PIECES = {"threads": Tunnel}
