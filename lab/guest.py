# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A guest: boots, runs commands of the host's files, is ended with all it started. README.md shows its use."""

import dataclasses
import json
import os
import pathlib
import re
import select
import signal
import socket
import sys
import time

import accel as accelerators
import kernel
import qemu
import results
import wire

BOOT_SECONDS = 60
RUN_SECONDS = 120
CONSOLE_LINES = 40
CHUNK = 256 << 10
OUTPUT_LIMIT = 64 << 20  # of a command that has no sink
SKIPPED = 77  # what meson takes for a skipped test
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class GuestError(Exception):
    """Something other than a command failed; `console` has the end of what the guest printed."""
    status = 239

    def __init__(self, what, console=""):
        super().__init__(f"{what}\n{console}" if console else what)
        self.what = what


class NeverBooted(GuestError):
    """No sign of life from the guest's init in time."""
    status = 240


class Panic(GuestError):
    """The guest's kernel panicked."""
    status = 241


class TimedOut(GuestError):
    """A command did not end in time; it has been killed."""
    status = 242


class Ended(GuestError):
    """QEMU ended although nobody asked for it."""
    status = 243


@dataclasses.dataclass
class Options:
    cpus: int = 2
    memory_mb: int = 1024
    accel: str = "auto"  # auto, kvm, tcg
    boot_seconds: float = BOOT_SECONDS
    forward: tuple = ()  # TCP ports of the guest reachable from the host; the host is HOST in the guest
    has_host_net: bool = False
    share: tuple = ()  # folders below results.HIDDEN that the guest must see
    env: dict = dataclasses.field(default_factory=dict)


# What QEMU's user network calls the host (its 127.0.0.1) and the guest.
HOST, USER_ADDRESS = "10.0.2.2", "10.0.2.15/24"


@dataclasses.dataclass
class Completed:
    argv: list
    status: int
    stdout: bytes
    stderr: bytes

    def check(self):
        if self.status != 0:
            raise GuestError(f"{' '.join(map(str, self.argv))} ended with status {self.status}: "
                             f"{(self.stdout + self.stderr).decode(errors='replace')[-4000:]}")
        return self


class Process:
    """A command in the guest."""

    def __init__(self, guest, number, argv, sink):
        self.guest, self.number, self.argv = guest, number, argv
        self.status = None
        self._sink = sink
        self._output = {wire.STDOUT: [], wire.STDERR: []}
        self._size = 0

    def take(self, kind, data):
        if self._sink:
            self._sink(kind == wire.STDERR, data)
            return
        self._output[kind].append(data)
        self._size += len(data)
        if self._size > OUTPUT_LIMIT:
            self.kill()
            raise GuestError(f"{' '.join(self.argv)} printed more than {OUTPUT_LIMIT >> 20} MB")

    def expect(self, text, seconds):
        """Waits until standard output has the bytes `text`, so that what they announce is there."""
        deadline = time.monotonic() + seconds
        while text not in b"".join(self._output[wire.STDOUT]):
            if self.status is not None or not self.guest.pump(deadline):
                raise GuestError(f"{' '.join(self.argv)} did not print {text!r} within {seconds:g} s: "
                                 f"status {self.status}, {b''.join(self._output[wire.STDERR])!r}")

    def kill(self, number=signal.SIGKILL):
        self.guest.send(wire.KILL, self.number, {"signal": int(number)})

    def wait(self, seconds=RUN_SECONDS):
        """The Completed command. TimedOut once `seconds` have passed: then it is killed."""
        deadline = time.monotonic() + seconds
        while self.status is None:
            if not self.guest.pump(deadline):
                self.kill()
                raise TimedOut(f"{' '.join(self.argv)} did not end within {seconds:g} s", self.guest.tail())
        return Completed(self.argv, self.status, *(b"".join(o) for o in self._output.values()))


class Guest:
    """`with Guest("name") as g: g.run(["uname", "-a"])`.

    Everything of a run is kept in `folder` (build/lab/NAME): console.log, qemu.log, captures, and what commands write to
    LAB_OUT, which is the same path in the guest. A folder that exists is replaced. A guest belongs to the thread that
    started it.
    """

    def __init__(self, name, options=None, folder=None, out=None, links=(), addresses=(), inherited=(), env=None,
                 is_interactive=False):
        self.name, self.options = name, options or Options()
        self.folder = folder or results.claim(name)
        self.out = out or self.folder / "out"
        self.console = None if is_interactive else self.folder / "console.log"
        self._links, self._addresses = list(links), list(addresses)
        self._inherited = list(inherited)
        self._env = env or {}
        self._frames = wire.Frames()
        self._processes, self._count = {}, 0
        self._qemu = self._port = self._monitor = None
        self._heard, self._failed = set(), None
        self.forwarded = {}  # port of the guest -> port on the host's 127.0.0.1
        self.boot_took = None

    def __enter__(self):
        try:
            self.boot()
            self.wait_until_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    # Starting and ending.

    def boot(self):
        """Starts QEMU and returns; wait_until_ready() follows."""
        self.out.mkdir(parents=True, exist_ok=True)
        self.out.chmod(0o1777)
        image = kernel.image()
        accel = accelerators.choose(self.options.accel, image)
        links = list(self._links)
        if self.options.has_host_net or self.options.forward:
            forwards = "".join(f",hostfwd=tcp:127.0.0.1:0-:{int(port)}" for port in self.options.forward)
            links.append(qemu.Link(f"user{forwards}", "52:54:00:00:02:15", self.folder / "host.pcap"))
        self._shares = [qemu.Share(p) for p in results.hidden([*self.options.share, results.ROOT])] + [qemu.Share(self.out, True)]
        for number, share in enumerate(self._shares):
            share.tag = f"share{number}"
        self._port, port_end = socket.socketpair()
        self._monitor, monitor_end = socket.socketpair()
        with port_end, monitor_end, open(self.folder / "qemu.log", "wb") as errors:
            machine = qemu.Machine(image, accel, self.options.cpus, self.options.memory_mb, self.console,
                                   port_end.fileno(), monitor_end.fileno(), self._shares, links, self._inherited)
            self._began = time.monotonic()
            self._qemu = qemu.start(machine, errors)
        self._port.setblocking(False)

    def wait_until_ready(self):
        deadline = self._began + self.options.boot_seconds
        self._wait_for(wire.HELLO, deadline)
        self._set_up()
        self._wait_for(wire.READY, deadline)
        self.boot_took = time.monotonic() - self._began
        if self.options.forward:
            self.forwarded = self._read_forwards(deadline)

    def _wait_for(self, kind, deadline):
        while kind not in self._heard:
            try:
                if not self.pump(deadline):
                    raise NeverBooted(f"the guest did not boot within {self.options.boot_seconds:g} s", self.tail())
            except Ended as error:
                raise NeverBooted(f"the guest never booted: {error.what}", self.tail()) from None
        if self._failed:
            raise NeverBooted(f"the guest's init failed: {self._failed}", self.tail())

    def _set_up(self):
        ip = ["link set lo up"]
        for number, addresses in enumerate(self._addresses):
            ip += [f"link set eth{number} up", *(f"address add {a} dev eth{number} {'nodad' if ':' in a else ''}" for a in addresses)]
        if self.options.has_host_net or self.options.forward:
            device = f"eth{len(self._links)}"
            ip += [f"link set {device} up", f"address add {USER_ADDRESS} dev {device}"]
        self.send(wire.SETUP, 0, {
            "hostname": self.name, "msize": qemu.MSIZE, "ip": ip,
            "sysctl": {"net/ipv4/ping_group_range": "0 2147483647", "kernel/printk": "5 4 1 3",
                       # Addresses are usable at once instead of after a second of detection.
                       "net/ipv6/conf/default/accept_dad": "0", "net/ipv6/conf/all/accept_dad": "0"},
            "shares": [{"tag": s.tag, "path": str(s.path), "writable": s.is_writable} for s in self._shares]})

    def stop(self):
        """Ends the guest and all it runs. Files and captures are complete afterwards."""
        if self._qemu:
            qemu.stop(self._qemu)
        for end in (self._port, self._monitor):
            if end:
                end.close()

    # Commands.

    def start(self, argv, cwd=None, env=None, sink=None, is_terminal=False):
        """A Process. `sink(is_stderr, data)` gets its output instead of Completed."""
        self._count += 1
        argv = [str(a) for a in argv]
        process = Process(self, self._count, argv, sink)
        self._processes[self._count] = process
        self.send(wire.START, self._count, {"argv": argv, "cwd": str(cwd or "/"), "terminal": is_terminal,
                                            "env": {**self.environment(), **(env or {})}})
        return process

    def run(self, argv, seconds=RUN_SECONDS, **how):
        """Runs a command to its end: Completed, whatever its status; 128 + n when signal n ended it."""
        return self.start(argv, **how).wait(seconds)

    def environment(self):
        return {"PATH": PATH, "HOME": "/tmp", "LANG": "C.UTF-8", "TERM": os.environ.get("TERM", "dumb"), "LAB": "1",
                "LAB_OUT": str(self.out), "LAB_HOST": HOST, **self._env, **self.options.env}

    # The port.

    def send(self, kind, number, payload):
        self._port.setblocking(True)
        try:
            self._port.settimeout(self.options.boot_seconds)
            self._port.sendall(wire.frame(kind, number, payload))
        except (BrokenPipeError, ConnectionResetError):
            self._raise_end()
        finally:
            self._port.setblocking(False)

    @property
    def pid(self):
        """QEMU's."""
        return self._qemu.pid

    def fileno(self):
        """Readable when pump() has something to do."""
        return self._port.fileno()

    def pump(self, deadline):
        """Handles what the guest has sent, or waits for it; False when the deadline (None: never) has passed first."""
        wait = None if deadline is None else max(0, deadline - time.monotonic())
        if not select.select([self._port], [], [], wait)[0]:
            return False
        try:
            data = self._port.recv(CHUNK)
        except ConnectionResetError:
            data = b""
        if not data:
            self._raise_end()
        for kind, number, payload in self._frames.feed(data):
            self._take(kind, number, payload)
        return True

    def _take(self, kind, number, payload):
        process = self._processes.get(number)
        if kind in (wire.HELLO, wire.READY):
            self._heard.add(kind)
        elif kind == wire.FAILED:
            self._failed = payload.decode(errors="replace")
            self._heard.add(wire.READY)
        elif kind in (wire.STDOUT, wire.STDERR) and process:
            process.take(kind, payload)
        elif kind == wire.EXIT and process:
            status = json.loads(payload)["status"]
            process.status = status if status >= 0 else 128 - status
            del self._processes[number]

    def _raise_end(self):
        try:
            status = self._qemu.wait(qemu.STOP_SECONDS)
        except Exception:
            status = "unknown"
        console = self.console_text()
        panic = re.search(r"Kernel panic.*", console)
        if panic:
            raise Panic(f"the guest's kernel panicked: {panic[0].strip()}", self.tail())
        said = (self.folder / "qemu.log").read_text(errors="replace").strip()
        raise Ended(f"QEMU ended with status {status}: {said or 'it said nothing'}", self.tail())

    def console_text(self):
        if self.console is None or not self.console.exists():
            return ""
        return self.console.read_text(errors="replace")

    def tail(self):
        lines = self.console_text().replace("\r", "").splitlines()[-CONSOLE_LINES:]
        return "\n".join(["the guest's console:" if lines else "the guest's console is empty", *lines])

    def _read_forwards(self, deadline):
        """QEMU chose the host's ports, so that no two runs can meet."""
        self._monitor.settimeout(max(1, deadline - time.monotonic()))
        replies = self._monitor.makefile("rw", encoding="utf-8")
        replies.readline()
        for request in ({"execute": "qmp_capabilities"},
                        {"execute": "human-monitor-command", "arguments": {"command-line": "info usernet"}}):
            replies.write(json.dumps(request) + "\n")
            replies.flush()
            while "return" not in (reply := json.loads(replies.readline())):
                pass
        found = re.findall(r"TCP\[HOST_FORWARD\]\s+\S+\s+127\.0\.0\.1\s+(\d+)\s+\S+\s+(\d+)", reply["return"])
        return {int(inside): int(outside) for outside, inside in found}


def run_inside(file, name, options=None, seconds=RUN_SECONDS, arguments=()):
    """Runs a Python program of the checkout in a guest, output and all, and returns its status.

    A test that is to run in the guest calls this where LAB is not set, and its cases where it is.
    """
    skip_without_kernel()

    def pass_on(is_stderr, data):
        (sys.stderr if is_stderr else sys.stdout).buffer.write(data)
        (sys.stderr if is_stderr else sys.stdout).flush()

    with Guest(name, options) as one:
        process = one.start(["/usr/bin/python3", "-B", pathlib.Path(file).resolve(), *arguments], sink=pass_on)
        return process.wait(seconds).status


def skip_without_kernel():
    """For tests run by hand: ends this process as skipped if there is nothing to boot."""
    try:
        kernel.image()
        qemu.check()
    except (kernel.KernelError, qemu.QemuError) as error:
        print(f"no guest: {error}")
        sys.exit(SKIPPED)
