#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Two programs on one host that run short of something, are different users' or find nonsense in the registry: every
connection works, and nothing is left behind. usage: scarcity_test.py DDPRUN ENGINE

Run with the arguments `server` or `client` it is such a program.
"""

import ctypes
import os
import random
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

NOBODY = 65533  # and the one before: users whom this host does not know
SERVERS_MOMENTS = "begin", "listening", "accepted", "first message"
CLIENTS_MOMENTS = "begin", "socket", "connected", "first message"
ROUNDS, CONNECTIONS = 12, 4
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable  # for all users
SOL_DDP, DDP_ENGINE = 0x44445000, 2


# What a program runs short of, and when. Each takes effect on the process that calls it.


def limit(what, value):
    resource.setrlimit(what, (value, resource.getrlimit(what)[1]))


def no_more_descriptors(spare=0):
    probe = os.dup(0)  # the lowest free number: those below are in use
    os.close(probe)
    limit(resource.RLIMIT_NOFILE, probe + spare)


def no_more_address_space(spare=128 << 10):
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[0])
    limit(resource.RLIMIT_AS, pages * resource.getpagesize() + spare)


def refuse_memfd(error):
    """A seccomp filter as containers have one."""
    memfd_create, arch = {"x86_64": (319, 0xC000003E), "aarch64": (279, 0xC00000B7)}[os.uname().machine]
    load, equal, give = 0x20, 0x15, 0x06
    program = b"".join(struct.pack("HBBI", *line) for line in (
        (load, 0, 0, 4), (equal, 0, 2, arch), (load, 0, 0, 0), (equal, 1, 0, memfd_create),
        (give, 0, 0, 0x7FFF0000), (give, 0, 0, 0x00050000 | error)))
    lines = ctypes.create_string_buffer(program)
    filter_ = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(lines))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) != 0 or libc.prctl(22, 2, filter_, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")


SHORTAGES = {
    "nothing": lambda: None,
    "descriptors": no_more_descriptors,
    "one descriptor left": lambda: no_more_descriptors(1),
    "address space": no_more_address_space,
    "some address space": lambda: no_more_address_space(200 << 20),
    "20 MB of address space": lambda: no_more_address_space(20 << 20),
    "file size": lambda: limit(resource.RLIMIT_FSIZE, 4096),
    "no file size": lambda: limit(resource.RLIMIT_FSIZE, 0),
    "locked memory": lambda: limit(resource.RLIMIT_MEMLOCK, 0),
    "memfd, EPERM": lambda: refuse_memfd(1),
    "memfd, ENOSYS": lambda: refuse_memfd(38),
}


# The programs.


class Peer:
    def __init__(self, shortage, moment):
        self.shortage, self.moment = SHORTAGES[shortage], moment
        self.buffer = memoryview(bytearray(1 << 20))
        self.engines = []

    def reach(self, moment):
        if moment == self.moment:
            self.shortage()
            self.moment = None

    def read(self, connection, size):
        got = 0
        while got < size:
            n = connection.recv_into(self.buffer[got:size])
            if n == 0:
                raise EOFError(f"after {got} of {size} bytes")
            got += n

    def note_engine(self, connection):
        try:
            engine = connection.getsockopt(SOL_DDP, DDP_ENGINE, 16).split(b"\0")[0].decode() or "plain"
        except OSError:
            engine = "plain"
        self.engines.append(engine)

    @staticmethod
    def holdings():
        """Descriptors, and memory of connections."""
        with open("/proc/self/maps") as file:
            return len(os.listdir("/proc/self/fd")), file.read().count("ddpsock-stream")


def serve(peer, connection):
    with connection:
        peer.reach("accepted")
        while connection.recv_into(peer.buffer[:4], 4, socket.MSG_WAITALL) == 4:
            size = int.from_bytes(peer.buffer[:4], "big")
            peer.read(connection, size)
            connection.sendall(peer.buffer[:size])
            peer.reach("first message")
        peer.note_engine(connection)


def server(peer):
    peer.reach("begin")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print("port", listener.getsockname()[1], flush=True)
        peer.reach("listening")
        for _ in range(CONNECTIONS):
            serve(peer, listener.accept()[0])


def client(peer, port):
    data = random.Random(7).randbytes(1 << 20)
    sizes = [random.Random(n).choice((1, 100, 5000, 100_000, 300_000)) for n in range(ROUNDS)]
    # Made before memory may be short.
    messages = [size.to_bytes(4, "big") + data[:size] for size in sizes]
    peer.reach("begin")
    for _ in range(CONNECTIONS):
        with socket.socket() as connection:
            peer.reach("socket")
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.connect(("127.0.0.1", port))
            peer.reach("connected")
            for size, message in zip(sizes, messages):
                connection.sendall(message)
                peer.read(connection, size)
                if peer.buffer[:size] != memoryview(message)[4:]:
                    raise ValueError(f"other bytes of {size}")
                peer.reach("first message")
            peer.note_engine(connection)


def play():
    role, shortage, moment = sys.argv[1:4]
    # As a program has it that is not Python.
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    peer = Peer(shortage, moment)
    before = peer.holdings()
    server(peer) if role == "server" else client(peer, int(sys.argv[4]))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    after = peer.holdings()
    # One descriptor carries the streams of a process, whatever their number, and one asks the kernel who is at the other end.
    if after[0] > before[0] + 2 or after[1] != 0:
        raise SystemExit(f"left behind: {before}, then {after}")
    print("engines", *peer.engines, flush=True)


# The tests.


class Scarcity(unittest.TestCase):
    def make_environment(self):
        """With a registry that nobody has used."""
        self.registry = tempfile.mkdtemp(prefix="ddpsock-test-")
        os.chmod(self.registry, 0o1777)
        self.addCleanup(shutil.rmtree, self.registry)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("DDPSOCK_")}
        self.env["DDPSOCK_REGISTRY_DIR"] = self.registry
        file = os.path.join(self.registry, f"ddpsock-{os.geteuid()}")
        if self.make_registry:
            self.make_registry(file)
        if self.registry_content is not None:
            with open(file, "wb") as registry:
                registry.write(self.registry_content)
            os.chmod(file, 0o644)
        if self.is_registry_written_to:
            self.flood(file)

    def flood(self, file):
        """Writes every slot again and again, as what it was."""
        is_over = threading.Event()

        def write():
            with open(file, "r+b", buffering=0) as registry:
                while not is_over.is_set():
                    os.pwrite(registry.fileno(), self.registry_content, 0)
        flooder = threading.Thread(target=write)
        flooder.start()
        self.addCleanup(flooder.join)
        self.addCleanup(is_over.set)

    def start(self, *args, user=None):
        command = [*self.before, DDPRUN, "--prefer", "--engine", ENGINE, "--", PYTHON, os.path.abspath(__file__), *args]
        process = subprocess.Popen(command, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, user=user, group=user, cwd="/")
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.addCleanup(process.stdout.close)
        return process

    def run_pair(self, server, client, users=(None, None)):
        """The engines that served the connections, as both ends saw them. `server` and `client` are a shortage and a
        moment each."""
        self.make_environment()
        serving = self.start("server", *server, user=users[0])
        line = serving.stdout.readline()
        found = re.match(r"port (\d+)", line)
        self.assertTrue(found, line + serving.stdout.read() if not found else "")
        connecting = self.start("client", *client, found[1], user=users[1])
        said = [process.communicate(timeout=15)[0] for process in (connecting, serving)]
        self.assertTrue(connecting.returncode == serving.returncode == 0, said)
        return [re.search(r"engines (.*)", text)[1].split() for text in said]

    def expect(self, expected, *args, **options):
        """`expected`: the engine of all connections, or a set of those that may serve."""
        engines = self.run_pair(*args, **options)
        self.assertTrue(all(set(end) <= set(expected.split()) for end in engines), engines)

    before = ()
    make_registry = registry_content = None
    is_registry_written_to = False
    EVER = sorted({*SERVERS_MOMENTS, *CLIENTS_MOMENTS})
    NOTHING = ("nothing", "never")

    def test_nothing_is_short(self):
        self.expect(ENGINE, self.NOTHING, self.NOTHING)

    @unittest.skipIf(os.geteuid() != 0, "needs the superuser to become two users")
    def test_other_users(self):
        for users in (None, NOBODY), (NOBODY, None), (NOBODY, NOBODY - 1):
            with self.subTest(users=users):
                self.expect("user", self.NOTHING, self.NOTHING, users=users)
        self.expect(ENGINE, self.NOTHING, self.NOTHING, users=(NOBODY, NOBODY))

    def expect_both_ends(self, expected, shortage, moments):
        for moment in moments:
            with self.subTest(short=shortage, moment=moment):
                if moment in SERVERS_MOMENTS:
                    self.expect(expected, (shortage, moment), self.NOTHING)
                if moment in CLIENTS_MOMENTS:
                    self.expect(expected, self.NOTHING, (shortage, moment))

    def test_registry_of_nonsense(self):
        def live(slot):
            """An entry that nobody can prove to be gone: of a process that lives, in another network namespace, of now."""
            listener = slot % 2
            state = 2 << 40 | (0 if listener else 1) << 32 | os.getpid()
            return struct.pack("<8Q", state, slot + 1, 1, 0, 0, 0, 0, 0x1234 << 48 | made_at)
        made_at = int(time.clock_gettime(time.CLOCK_BOOTTIME))
        head = struct.pack("<Q56x", 0x00016b636f73706464)
        full = head + b"".join(map(live, range(4095)))
        noise = random.Random(3).randbytes(len(full))
        kinds = {
            "full": (full, "plain"),
            "full, and written to all the time": (full, "plain"),
            "noise": (head + noise[64:], f"plain user {ENGINE}"),
            "noise from the beginning on": (noise, "plain"),
            "short": (full[:1000], "plain"),
            "empty": (b"", ENGINE),
        }
        for name, (content, expected) in kinds.items():
            with self.subTest(registry=name):
                self.registry_content = content
                self.is_registry_written_to = "time" in name
                self.expect(expected, self.NOTHING, self.NOTHING)

    def test_registry_that_is_no_file(self):
        for make in os.mkdir, os.mkfifo, lambda path: os.symlink("/dev/zero", path):
            self.make_registry = make
            self.expect("plain", self.NOTHING, self.NOTHING)

    @unittest.skipIf(os.geteuid() != 0, "needs the superuser to mount a file system")
    def test_shared_memory_folder(self):
        for options, expected in ("size=4k", "plain"), ("size=300k", ENGINE), ("ro", "plain"):
            with self.subTest(options=options):
                # One namespace for both ends, so that they could share a registry.
                with subprocess.Popen(["unshare", "-m", "sh", "-c",
                                       f"mount -t tmpfs -o {options} none /dev/shm && echo here && exec cat"],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as namespace:
                    self.assertEqual(namespace.stdout.readline(), "here\n")
                    self.before = ("nsenter", "-t", str(namespace.pid), "-m", "env", "DDPSOCK_REGISTRY_DIR=/dev/shm")
                    self.expect(expected, self.NOTHING, self.NOTHING)
                    namespace.stdin.close()

    def test_descriptors(self):
        self.expect_both_ends("plain user " + ENGINE, "descriptors", ("socket", "connected", "accepted", "first message"))
        self.expect_both_ends("plain user " + ENGINE, "one descriptor left", ("listening", "socket", "connected", "accepted"))

    def test_address_space(self):
        self.expect_both_ends("user " + ENGINE, "address space", ("connected", "accepted", "first message"))
        self.expect_both_ends("user " + ENGINE, "some address space", ("begin", "listening"))
        self.expect_both_ends("user " + ENGINE, "20 MB of address space", ("begin",))

    def test_file_size(self):
        for shortage in "file size", "no file size":
            self.expect_both_ends("plain user " + ENGINE, shortage, self.EVER)

    def test_locked_memory(self):
        self.expect_both_ends(ENGINE, "locked memory", ("begin",))

    def test_memfd(self):
        for shortage in "memfd, EPERM", "memfd, ENOSYS":
            self.expect_both_ends("user " + ENGINE, shortage, self.EVER)


if __name__ == "__main__":
    if sys.argv[1] in ("server", "client"):
        play()
    else:
        DDPRUN, ENGINE = os.path.abspath(sys.argv.pop(1)), sys.argv.pop(1)
        unittest.main()
