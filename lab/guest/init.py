# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Process 1 of the guest: mounts what the host's root lacks, then starts the commands the runner sends.

Runs as `python3 -I init.py` from the host's files. If it ends the kernel panics, which is how the runner learns of it.
"""

import ctypes
import errno
import fcntl
import glob
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import termios
import time
import traceback

sys.dont_write_bytecode = True
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import wire

CONSOLE = "/dev/ttyS0"
CHUNK = 64 << 10
PIPE_CHUNKS = 16  # more than a pipe holds
PORT_SECONDS = 10
MS_RDONLY, MS_NOSUID, MS_NODEV = 1, 2, 4
# In this order, because later ones lie below earlier ones.
MOUNTS = [
    ("devtmpfs", "/dev", 0, "mode=755"),
    ("proc", "/proc", 0, ""),
    ("sysfs", "/sys", 0, ""),
    ("tmpfs", "/run", 0, "mode=755"),
    ("tmpfs", "/tmp", 0, "mode=1777"),
    ("tmpfs", "/var/tmp", 0, "mode=1777"),
    ("tmpfs", "/dev/shm", 0, "mode=1777"),
    ("devpts", "/dev/pts", 0, "mode=620,ptmxmode=666"),
]

libc = ctypes.CDLL(None, use_errno=True)


def mount(source, target, kind, flags=0, options=""):
    if libc.mount(source.encode(), target.encode(), kind.encode(), flags, options.encode()) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount {kind} on {target}: {os.strerror(number)}")


def mount_all():
    for kind, target, flags, options in MOUNTS:
        # Everything else is on the host's root, which cannot be written.
        if target.startswith("/dev/"):
            os.makedirs(target, exist_ok=True)
        mount(kind, target, kind, flags, options)
    for name, target in (("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0"), ("stdout", "/proc/self/fd/1"),
                         ("stderr", "/proc/self/fd/2")):
        os.symlink(target, f"/dev/{name}")


def open_port():
    """The runner's port. Its writes wait until the runner has them, its reads for one byte at least."""
    deadline = time.monotonic() + PORT_SECONDS
    while time.monotonic() < deadline:
        for path in glob.glob("/sys/class/virtio-ports/*/name"):
            with open(path, encoding="ascii") as f:
                if f.read().strip() == wire.PORT:
                    return os.open(f"/dev/{path.split('/')[-2]}", os.O_RDWR | os.O_CLOEXEC)
        time.sleep(0.01)
    raise RuntimeError(f"no virtio port is called {wire.PORT}")


def set_up(options):
    for share in options["shares"]:
        os.makedirs(share["path"], exist_ok=True)
        mode = "rw,cache=mmap" if share["writable"] else "ro,cache=loose"
        mount(share["tag"], share["path"], "9p", 0 if share["writable"] else MS_RDONLY,
              f"trans=virtio,version=9p2000.L,msize={options['msize']},{mode}")
    socket.sethostname(options["hostname"])
    for limit in (resource.RLIMIT_MEMLOCK, resource.RLIMIT_CORE):
        resource.setrlimit(limit, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    for path, value in options["sysctl"].items():
        with open(os.path.join("/proc/sys", path), "w", encoding="ascii") as f:
            f.write(value)
    lines = "\n".join(options["ip"]) + "\n"
    done = subprocess.run(["/sbin/ip", "-batch", "-"], input=lines, text=True, capture_output=True)
    if done.returncode != 0:
        raise RuntimeError(f"ip -batch: {done.stderr.strip()}")


class Command:
    def __init__(self, number, options):
        self.number = number
        self.has_terminal = options["terminal"]
        self.streams = {}  # of its output, to the kind of frame
        how = {"env": options["env"], "cwd": options["cwd"], "stdin": subprocess.DEVNULL, "start_new_session": True}
        if self.has_terminal:
            self.process = subprocess.Popen(options["argv"], preexec_fn=take_console, **how)
            return
        # Numbers and no file objects: those would close a number again when it already is another command's.
        pipes = [os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)]
        try:
            self.process = subprocess.Popen(options["argv"], stdout=pipes[0][1], stderr=pipes[1][1], **how)
        except OSError:
            for end, _ in pipes:
                os.close(end)
            raise
        finally:
            for _, end in pipes:
                os.close(end)
        self.streams = {pipes[0][0]: wire.STDOUT, pipes[1][0]: wire.STDERR}

    def kill(self, number):
        # The command leads a session and a group of its own.
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass


def take_console():
    terminal = os.open(CONSOLE, os.O_RDWR)
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    for number in range(3):
        os.dup2(terminal, number)


def drain_console():
    """Waits until the terminal has shown all that was written to it: the runner ends the guest next."""
    terminal = os.open(CONSOLE, os.O_RDWR | os.O_NOCTTY)
    termios.tcdrain(terminal)
    os.close(terminal)


class Init:
    def __init__(self, port):
        self._port = port
        self._frames = wire.Frames()
        self._commands = {}
        self._by_stream = {}
        self._poll = select.poll()
        self._poll.register(port, select.POLLIN)
        self._wake, wake_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_end)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._poll.register(self._wake, select.POLLIN)

    def send(self, kind, number, payload=b""):
        data = memoryview(wire.frame(kind, number, payload))
        while data:
            data = data[os.write(self._port, data):]

    def run(self):
        self.send(wire.HELLO, 0)
        while True:
            for fd, _ in self._poll.poll():
                if fd == self._port:
                    data = os.read(self._port, CHUNK)
                    if not data:
                        raise RuntimeError("the runner has gone")
                    for kind, number, payload in self._frames.feed(data):
                        self._obey(kind, number, payload)
                elif fd == self._wake:
                    os.read(self._wake, CHUNK)
                    self._reap()
                elif fd in self._by_stream:
                    self._forward(fd)

    def _obey(self, kind, number, payload):
        options = json.loads(payload)
        if kind == wire.SETUP:
            try:
                set_up(options)
            except (OSError, RuntimeError) as error:
                self.send(wire.FAILED, 0, str(error).encode())
                return
            self.send(wire.READY, 0)
        elif kind == wire.START:
            self._start(number, options)
        elif kind == wire.KILL:
            if number in self._commands:
                self._commands[number].kill(options["signal"])
        else:
            raise wire.WireError(f"a frame of kind {kind}")

    def _start(self, number, options):
        try:
            command = Command(number, options)
        except OSError as error:
            self.send(wire.STDERR, number, f"{options['argv'][0]}: {error.strerror}\n".encode())
            self.send(wire.EXIT, number, {"status": 126 if error.errno == errno.EACCES else 127})
            return
        self._commands[number] = command
        for fd in command.streams:
            self._by_stream[fd] = command
            os.set_blocking(fd, False)
            self._poll.register(fd, select.POLLIN)

    def _forward(self, fd):
        """Sends on what a command wrote; False once there is nothing now."""
        command = self._by_stream[fd]
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return False
        if data:
            self.send(command.streams[fd], command.number, data)
            return True
        self._poll.unregister(fd)
        del self._by_stream[fd]
        os.close(fd)
        return False

    def _reap(self):
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for command in [c for c in self._commands.values() if c.process.pid == pid]:
                self._finish(command, os.waitstatus_to_exitcode(status))

    def _finish(self, command, status):
        # What a daemon of the command writes later is still forwarded, and ignored by the runner.
        for fd in command.streams:
            for _ in range(PIPE_CHUNKS):
                if self._by_stream.get(fd) is not command or not self._forward(fd):
                    break
        if command.has_terminal:
            drain_console()
        command.process.returncode = status
        del self._commands[command.number]
        self.send(wire.EXIT, command.number, {"status": status})


def main():
    mount_all()
    Init(open_port()).run()


try:
    main()
except BaseException:
    traceback.print_exc()
    sys.stderr.flush()
    raise
