# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""iperf3: a connection that steers, others that carry, asked and measured in every direction."""

import json

from stage import expect, wait_until

PORT = 5299


class Streams:
    def __init__(self, stage):
        self.stage = stage

    def start(self):
        self.server = self.stage.server("iperf3", "-s", "-B", self.stage.address, "-p", PORT, port=PORT)

    def finish(self):
        self.server.terminate()
        self.server.wait(20)

    def measure(self, *words):
        """The server may still be at the end of the test before."""
        said = wait_until(lambda: self.ask(words), "the server is no longer busy")
        expect("error" not in said, said.get("error"))
        return said["end"]

    def ask(self, words):
        said = json.loads(self.stage.client("iperf3", "-c", self.stage.address, "-p", PORT, "-J", *words, status=None))
        return None if "busy running a test" in said.get("error", "") else said

    def check_one(self):
        expect(self.measure("-t", "1")["sum_received"]["bytes"] > 1 << 20, "too few bytes")

    def check_a_number_of_bytes_is_sent(self):
        expect(self.measure("-n", "64M")["sum_sent"]["bytes"] >= 64 << 20, "too few bytes")

    def check_the_other_way(self):
        expect(self.measure("-t", "1", "-R")["sum_received"]["bytes"] > 1 << 20, "too few bytes")

    def check_both_ways(self):
        end = self.measure("-t", "1", "--bidir")
        expect(end["sum_received"]["bytes"] > 1 << 20 and end["sum_received_bidir_reverse"]["bytes"] > 1 << 20, "too few bytes")

    def check_several(self):
        expect(len(self.measure("-t", "1", "-P", "4")["streams"]) == 4, "not four streams")

    def check_without_copies(self):
        expect(self.measure("-t", "1", "-Z")["sum_received"]["bytes"] > 1 << 20, "too few bytes")

    def check_slowed_down(self):
        bits = self.measure("-t", "2", "-b", "20M")["sum_received"]["bits_per_second"]
        expect(10e6 < bits < 30e6, f"{bits} bits in a second")

    def check_segments_and_windows(self):
        self.measure("-t", "1", "-w", "64K", "-l", "1000", "-N")

    def check_a_large_block(self):
        self.measure("-t", "1", "-l", "1M")

    def check_an_algorithm(self):
        self.measure("-t", "1", "-C", "reno")

    def check_udp_beside_it(self):
        expect(self.measure("-t", "1", "-u", "-b", "10M")["sum"]["packets"] > 10, "no packets")


PIECES = {"streams": Streams}
