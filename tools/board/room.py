# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""room.py SPEC: the first process of a room of its own (process, mount and network namespaces), in which one piece of a
suite runs. Whatever the piece starts ends with the room. Here it is noticed what hangs, crashes or stays behind.

The specification is JSON: command, events, folder, test_seconds, piece_seconds, has_elsewhere, over, shared_tmp, name.
"""

import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import events

ADDRESS_HERE, ADDRESS_ELSEWHERE = "10.77.0.1", "10.77.0.2"
GRACE_SECONDS = 3  # for processes to end by themselves
POLL_SECONDS = 0.05
END = "(end)"  # the name of the piece's own verdict


def run(*command):
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


def furnish(spec):
    """Folders that nobody else sees."""
    folder = pathlib.Path(spec["folder"])
    run("ip", "link", "set", "lo", "up")
    run("mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/dev/shm")
    run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    if spec["over"]:
        run("mount", "-t", "overlay", "-o", f"lowerdir={spec['over']}/usr:/usr", "overlay", "/usr")
    if not spec["shared_tmp"]:
        for place in ("/tmp", "/var/tmp"):
            own = folder / ("of" + place.replace("/", "_"))
            own.mkdir()
            own.chmod(0o1777)
            run("mount", "--bind", str(own), place)


def open_elsewhere():
    """A second network namespace, behind a device whose segments are as large as the loopback's. The pid of its keeper."""
    keeper = subprocess.Popen(["unshare", "--net", "--", "sh", "-c", "ip link set lo up && echo && exec sleep infinity"],
                              stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    keeper.stdout.read(1)
    inside = ["nsenter", "-t", str(keeper.pid), "-n", "ip"]
    run("ip", "link", "add", "here", "mtu", "65535", "type", "veth", "peer", "name", "there", "mtu", "65535",
        "netns", str(keeper.pid))
    run("ip", "addr", "add", f"{ADDRESS_HERE}/24", "dev", "here")
    run(*inside, "addr", "add", f"{ADDRESS_ELSEWHERE}/24", "dev", "there")
    run("ip", "link", "set", "here", "up")
    run(*inside, "link", "set", "there", "up")
    while "LOWER_UP" not in subprocess.run(["ip", "link", "show", "here"], capture_output=True, text=True).stdout:
        time.sleep(0.01)
    return keeper.pid


@dataclasses.dataclass
class Process:
    pid: int
    command: str
    state: str
    where: str


def processes(without):
    """Every other process of the room that is alive."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in without:
            continue
        try:
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            if state != "Z" and command:
                found.append(Process(int(entry.name), command, state, (entry / "wchan").read_text()))
        except OSError:  # it has gone
            continue
    return found


class Room:
    def __init__(self, spec):
        self.spec = spec
        self.kept = {1}
        self.is_over = False
        self.deadline = time.monotonic() + spec["piece_seconds"]

    def reap(self):
        """The status of each child that has ended: whoever loses its parent becomes ours."""
        ended = {}
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return ended
            if pid == 0:
                return ended
            ended[pid] = status

    def end_others(self):
        """Kills until nobody is left."""
        while others := processes(self.kept):
            for process in others:
                try:
                    os.kill(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.01)
            self.reap()

    def describe(self, why):
        print(f"\n--- {why}; the processes:")
        for process in processes(self.kept):
            print(f"{process.pid} {process.state} {process.where} {process.command[:200]}")
        sys.stdout.flush()

    def run_once(self, notes):
        """Starts the command and waits for its end, or ends it. Returns a note on how it ended, or None where all was well."""
        child = subprocess.Popen(self.spec["command"], start_new_session=True, stdin=subprocess.DEVNULL, cwd=self.spec["folder"])
        test, since, seen = None, time.monotonic(), 0
        while True:
            # Whether it has ended is asked first: what it wrote is then all there.
            status = self.reap().get(child.pid)
            so_far = events.read(self.spec["events"])
            running = events.outcomes(so_far)[1]
            if len(so_far) != seen:
                test, since, seen = running, time.monotonic(), len(so_far)
            if status is not None:
                child.returncode = os.waitstatus_to_exitcode(status)
                if test is not None:
                    notes.end(test, events.CRASH, f"status {child.returncode}")
                return None if child.returncode == 0 else f"status {child.returncode}"
            now = time.monotonic()
            # Before the first test something may have to be built.
            if now > self.deadline or (seen > 0 and now - since > self.spec["test_seconds"]):
                whole = now > self.deadline
                why = f"not done after {self.spec['piece_seconds'] if whole else self.spec['test_seconds']} seconds"
                self.describe(f"{test}: {why}")
                os.kill(child.pid, signal.SIGABRT)  # Python says where it is
                time.sleep(0.5)
                self.end_others()
                self.is_over = whole or test is None
                if test is not None:
                    notes.end(test, events.HANG, why)
                return why
            time.sleep(POLL_SECONDS)

    def stay_behind(self):
        """Who is still there a while after the end."""
        patience = time.monotonic() + GRACE_SECONDS
        while (others := processes(self.kept)) and time.monotonic() < patience:
            self.reap()
            time.sleep(POLL_SECONDS)
        return others

    def run(self):
        notes = events.Events(self.spec["events"])
        before = None
        while True:
            how = self.run_once(notes)
            found = len(events.outcomes(events.read(self.spec["events"]))[0])
            # Started again it goes on behind the test that hung or crashed, as long as it comes further.
            if how is None or self.is_over or found == before:
                break
            before = found
            self.end_others()
        problems = [f"did not end well: {how}"] if how else []
        if others := self.stay_behind():
            problems.append("stayed behind: " + "; ".join(sorted({process.command[:100] for process in others})))
            self.describe("stayed behind")
            self.end_others()
        if left := [name for name in sorted(os.listdir("/dev/shm")) if not name.startswith("ddpsock-")]:
            problems.append("left in shared memory: " + ", ".join(left))
        name = f"{self.spec['name']}: {END}"
        notes.end(name, events.FAIL if problems else events.PASS, ". ".join(problems))


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        spec = json.load(file)
    for number in (signal.SIGTERM, signal.SIGINT):  # of which a first process is spared unless it asks
        signal.signal(number, lambda *_: os._exit(1))
    furnish(spec)
    room = Room(spec)
    if spec["has_elsewhere"]:
        keeper = open_elsewhere()
        room.kept.add(keeper)
        os.environ["BOARD_ELSEWHERE"] = str(keeper)
    room.run()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
