# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Mosquitto and its clients."""

import re
import time

from stage import digest, expect, wait_until

PORT = 1899


class Messages:
    def __init__(self, stage):
        self.stage = stage

    def start(self):
        config = self.stage.write("mosquitto.conf", f"listener {PORT} {self.stage.address}\nallow_anonymous true\nuser root\npersistence false\n")
        self.server = self.stage.server("/usr/sbin/mosquitto", "-v", "-c", config, port=PORT)
        self.at = ["-h", self.stage.address, "-p", str(PORT)]

    def finish(self):
        self.stage.stop(self.server)

    def await_subscribers(self, topic, count):
        """Who is one, the server says."""
        wait_until(lambda: len(re.findall(rf"\d {re.escape(topic)}\n", self.server.log.read_text())) >= count, "it has subscribed")

    def subscriber(self, topic, count, *more):
        process = self.stage.start_client("mosquitto_sub", *self.at, "-t", topic, "-C", str(count), "-W", "40", *more)
        self.await_subscribers(topic, 1)
        return process

    def check_each_way_of_delivery(self):
        for quality in ("0", "1", "2"):
            hearing = [self.subscriber(f"news/{quality}", 20, "-q", quality) for _ in range(3)]
            self.await_subscribers(f"news/{quality}", 3)
            words = "".join(f"word-{number}\n" for number in range(20)).encode()
            self.stage.client("mosquitto_pub", *self.at, "-t", f"news/{quality}", "-q", quality, "-l", input=words)
            for process in hearing:
                expect(process.wait(40) == 0, self.stage.said(process))
                said = process.log.read_text()
                expect(all(f"word-{number}\n" in said for number in range(20)), said[-500:])

    def check_a_large_message(self):
        data = self.stage.data("message", 4 << 20)
        process = self.stage.start_client("mosquitto_sub", *self.at, "-t", "large", "-C", "1", "-W", "40", "-N")
        self.stage.client("mosquitto_pub", *self.at, "-t", "large", "-r", "-f", data)
        expect(process.wait(40) == 0, "no message")
        expect(digest(process.log) == digest(data), "not the bytes that were sent")

    def check_a_message_that_is_kept(self):
        self.stage.client("mosquitto_pub", *self.at, "-t", "kept", "-r", "-m", "words")
        expect(self.stage.client("mosquitto_sub", *self.at, "-t", "kept", "-C", "1", "-W", "20") == b"words\n", "another message")

    def check_a_will_of_one_that_is_killed(self):
        hearing = self.subscriber("will", 1)
        dying = self.stage.start_client("mosquitto_sub", *self.at, "-t", "nothing", "--will-topic", "will", "--will-payload", "gone")
        self.await_subscribers("nothing", 1)
        dying.kill()
        dying.wait()
        expect(hearing.wait(40) == 0 and "gone" in self.stage.said(hearing), self.stage.said(hearing))

    def check_kept_alive(self):
        process = self.subscriber("late", 1, "-k", "5")
        expect(process.poll() is None, "it has ended")
        time.sleep(8)
        self.stage.client("mosquitto_pub", *self.at, "-t", "late", "-m", "words")
        expect(process.wait(20) == 0, self.stage.said(process))


PIECES = {"messages": Messages}
