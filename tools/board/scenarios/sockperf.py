# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""sockperf over TCP, which checks the numbers of its own messages."""

from stage import expect

PORT = 11199


class Tcp:
    def __init__(self, stage):
        self.stage = stage

    def start(self):
        self.server = self.stage.server("sockperf", "server", "--tcp", "-i", self.stage.address, "-p", PORT, port=PORT)

    def finish(self):
        self.server.terminate()
        self.server.wait(20)

    def measure(self, kind, *words):
        said = self.stage.client("sockperf", kind, "--tcp", "-i", self.stage.address, "-p", PORT, "-t", "2", *words).decode()
        expect("dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0" in said or kind == "throughput", said)

    def check_ping_pong(self):
        self.measure("ping-pong", "-m", "64")

    def check_ping_pong_with_data_checked(self):
        self.measure("ping-pong", "-m", "1000", "--data-integrity")

    def check_under_load(self):
        self.measure("under-load", "--mps", "5000", "--reply-every", "5")

    def check_throughput(self):
        self.measure("throughput", "-m", "1400")

    def check_several_connections_by_each_poller(self):
        # The ports of the feed are not the other server's.
        for number, poller in enumerate(("select", "poll", "epoll")):
            feed = self.stage.write(f"feed-{poller}", "".join(f"T:{self.stage.address}:{PORT + 10 * (number + 1) + each}\n" for each in range(3)))
            server = self.stage.server("sockperf", "server", "-f", feed, "-F", poller, port=PORT + 10 * (number + 1) + 2)
            said = self.stage.client("sockperf", "ping-pong", "-f", feed, "-F", poller, "-t", "2").decode()
            expect("dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0" in said, said)
            server.terminate()
            server.wait(20)


PIECES = {"tcp": Tcp}
