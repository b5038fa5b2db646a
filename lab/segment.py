# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Two guests on one Ethernet segment: eth0 of each, joined by nothing but a pair of sockets, captured at both ends."""

import select
import socket
import time

import guest
import qemu
import results

ADDRESSES = ["10.9.0.1", "10.9.0.2"]
ADDRESSES6 = ["fd09::1", "fd09::2"]


class Segment:
    """`with Segment("name") as s: s.guests[0].run(...)`; both share LAB_OUT; segment.pcap lies in each one's folder."""

    def __init__(self, name, options=None, mtu=1500):
        self.folder = results.claim(name)
        self._options, self._mtu = options or guest.Options(), mtu
        self.guests = []

    def __enter__(self):
        ends = socket.socketpair()
        try:
            for number, end in enumerate(ends, 1):
                self.guests.append(self._guest(number, end))
                self.guests[-1].boot()
            for one in self.guests:
                one.wait_until_ready()
        except BaseException:
            self.stop()
            raise
        finally:
            for end in ends:
                end.close()
        return self

    def _guest(self, number, end):
        folder = self.folder / str(number)
        folder.mkdir()
        own, peer = number - 1, 2 - number
        link = qemu.Link(f"socket,fd={end.fileno()}", f"52:54:00:09:00:0{number}", folder / "segment.pcap", self._mtu)
        return guest.Guest(f"guest{number}", self._options, folder, self.folder / "out", [link],
                           [[f"{ADDRESSES[own]}/24", f"{ADDRESSES6[own]}/64"]], [end.fileno()],
                           {"LAB_GUEST": str(number), "LAB_ADDRESS": ADDRESSES[own], "LAB_PEER": ADDRESSES[peer],
                            "LAB_ADDRESS6": ADDRESSES6[own], "LAB_PEER6": ADDRESSES6[peer]})

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        for one in self.guests:
            one.stop()


def wait_all(processes, seconds, grace_seconds):
    """Waits for commands of several guests together and returns their statuses.

    Once one has failed the others have `grace_seconds` left; those that have not ended then are killed and TimedOut is
    raised if none had failed, else their status is that of the kill.
    """
    deadline = time.monotonic() + seconds
    has_failed = False
    while any(p.status is None for p in processes):
        if not has_failed and any(p.status for p in processes):
            has_failed, deadline = True, min(deadline, time.monotonic() + grace_seconds)
        running = {p.guest for p in processes if p.status is None}
        ready = select.select(running, [], [], max(0, deadline - time.monotonic()))[0]
        for one in ready:
            one.pump(deadline)
        if not ready and time.monotonic() >= deadline:
            late = [p for p in processes if p.status is None]
            for process in late:
                process.kill()
            if not has_failed:
                raise guest.TimedOut(f"{' '.join(late[0].argv)} did not end within {seconds:g} s in {late[0].guest.name}",
                                     late[0].guest.tail())
            for process in late:
                process.status = 137
    return [p.status for p in processes]
