# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Captures one TCP port on loopback with dumpcap and refuses to be content with a capture that lost packets."""

import os
import re
import signal
import subprocess
import time

import ports

BUFFER_MB = 512
START_SECONDS = 10
DRAIN_SECONDS = 10
DROPPED = re.compile(r"packets received/dropped on interface .*?: (\d+)/(\d+) \(pcap:(\d+)/dumpcap:(\d+)", re.IGNORECASE)


class CaptureError(Exception):
    """The capture could not be made, or is not complete."""


class Capture:
    """`with Capture(path, port):` has every packet of that port in the file when the block is left."""

    def __init__(self, path, port):
        self._path, self._port = path, port

    def __enter__(self):
        if os.path.exists(self._path):
            os.unlink(self._path)
        # -s 0 keeps whole packets; -P writes the older format, whose header appears as soon as capturing has begun.
        self._dumpcap = subprocess.Popen(
            ["dumpcap", "-q", "-P", "-i", "lo", "-s", "0", "-B", str(BUFFER_MB), "-f", f"tcp port {self._port}",
             "-w", self._path], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + START_SECONDS
        while not (os.path.exists(self._path) and os.path.getsize(self._path) > 0):
            if self._dumpcap.poll() is not None or time.monotonic() > deadline:
                self._dumpcap.kill()
                raise CaptureError(f"dumpcap did not start: {self._dumpcap.communicate()[1].strip()}")
            time.sleep(0.02)
        return self

    def __exit__(self, kind, value, traceback):
        if kind is None:
            ports.wait_until_closed(self._port, DRAIN_SECONDS)
            self._wait_until_written()
        self._dumpcap.send_signal(signal.SIGINT)
        messages = self._dumpcap.communicate(timeout=DRAIN_SECONDS)[1]
        if kind is not None:
            return
        counts = DROPPED.search(messages)
        if not counts:
            raise CaptureError(f"dumpcap did not say what it dropped: {messages.strip()}")
        if any(int(n) for n in counts.groups()[1:]):
            raise CaptureError(f"the capture lost packets: {counts[0]}")

    def _wait_until_written(self):
        """Packets reach the file in batches; once it has not grown for a while, the last batch is there."""
        size, since = -1, time.monotonic()
        deadline = since + DRAIN_SECONDS
        while time.monotonic() < deadline and time.monotonic() - since < 0.5:
            now = os.path.getsize(self._path)
            if now != size:
                size, since = now, time.monotonic()
            time.sleep(0.05)
