# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the kernel says about a TCP port on this host, read without connecting to it."""

import socket
import time

LISTEN, TIME_WAIT = 0x0A, 0x06
TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


def states(port):
    """The TCP state of every socket whose local or remote port is `port`."""
    found = []
    for table in TABLES:
        with open(table, encoding="ascii") as lines:
            for line in list(lines)[1:]:
                _, local, remote, state = line.split()[:4]
                if port in (int(local.rpartition(":")[2], 16), int(remote.rpartition(":")[2], 16)):
                    found.append(int(state, 16))
    return found


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until_listening(port, process, seconds):
    deadline = time.monotonic() + seconds
    while LISTEN not in states(port):
        if process.poll() is not None:
            raise RuntimeError(f"{process.args} ended with status {process.returncode} before it listened")
        if time.monotonic() > deadline:
            raise RuntimeError(f"{process.args} does not listen on port {port}")
        time.sleep(0.02)


def wait_until_closed(port, seconds):
    """Until no connection of the port is open any more, so that its last packet has been sent."""
    deadline = time.monotonic() + seconds
    while any(s not in (LISTEN, TIME_WAIT) for s in states(port)):
        if time.monotonic() > deadline:
            raise RuntimeError(f"connections on port {port} did not end")
        time.sleep(0.02)
