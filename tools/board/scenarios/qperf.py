# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""qperf over TCP: a child for each test, a second connection that it agrees upon."""

from stage import expect

PORT, DATA_PORT = 19765, 19766


class Tcp:
    def __init__(self, stage):
        self.stage = stage

    def start(self):
        self.server = self.stage.server("qperf", "--listen_port", PORT, port=PORT)

    def finish(self):
        self.server.terminate()
        self.server.wait(20)

    def measure(self, *words):
        said = self.stage.client("qperf", "--listen_port", PORT, self.stage.address, "-t", "1", "--ip_port", DATA_PORT, *words).decode()
        expect("=" in said and "failed" not in said, said)

    def check_bandwidth(self):
        self.measure("tcp_bw")

    def check_bandwidth_in_small_pieces(self):
        self.measure("-m", "100", "tcp_bw")

    def check_latency(self):
        self.measure("tcp_lat")

    def check_several_after_each_other(self):
        self.measure("tcp_lat", "tcp_bw", "tcp_lat")

    def check_udp_beside_it(self):
        self.measure("udp_lat")

    def check_what_it_knows_of_the_other_host(self):
        self.measure("conf")


PIECES = {"tcp": Tcp}
