#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""ddprun --pcap and --trace of unmodified programs: Wireshark decodes what went, whoever carried it, and a file that
cannot be written is no program's concern.
usage: recording_test.py DDPRUN EXAMPLES DECODE_DIR

Run with the arguments `play TASK ...` it is a program of a test.
"""

import ctypes
import mmap
import os
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

THIS = os.path.abspath(__file__)
CLOSE_RANGE = 436
ROUNDS = 12
FAILED = 125


def message(number):
    return bytes([number]) * (1 + number * 4000)


SENT = sum(len(message(i)) for i in range(ROUNDS))


def receive(connection, size):
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(size - len(data))
        assert piece, "the peer has ended too early"
        data += piece
    return bytes(data)


def serve_rounds(connection, first=0, rounds=ROUNDS):
    for i in range(first, first + rounds):
        connection.sendall(receive(connection, len(message(i))))


def announce(listener):
    print(listener.getsockname()[1], flush=True)


def play_server():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        announce(listener)
        with listener.accept()[0] as connection:
            serve_rounds(connection)
            assert connection.recv(1) == b""


def play_nibbling_server():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        announce(listener)
        with listener.accept()[0] as connection:
            for i in range(ROUNDS):
                connection.sendall(b"".join(receive(connection, min(64, len(message(i)) - at)) for at in range(0, len(message(i)), 64)))
            assert connection.recv(1) == b""


def play_forking_server():
    """The parent serves three rounds, the child all others."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        announce(listener)
        connection = listener.accept()[0]
    serve_rounds(connection, 0, 3)
    child = os.fork()
    if child == 0:
        serve_rounds(connection, 3, ROUNDS - 3)
        assert connection.recv(1) == b""
        connection.close()
        os._exit(0)
    connection.close()
    assert os.waitpid(child, 0)[1] == 0


def play_dropping_server():
    """As daemons do that begin as the superuser: a child of another user serves."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        announce(listener)
        child = os.fork()
        if child == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            with listener.accept()[0] as connection:
                serve_rounds(connection)
                assert connection.recv(1) == b""
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0


def talk(port, before=lambda i, fd: None):
    connection = socket.create_connection(("127.0.0.1", int(port)))
    for i in range(ROUNDS):
        before(i, connection.fileno())
        connection.sendall(message(i))
        assert receive(connection, len(message(i))) == message(i)
    connection.shutdown(socket.SHUT_WR)
    assert connection.recv(1) == b""
    connection.close()


def play_client(port):
    talk(port)


def play_limited(port):
    """No file may grow (much) beyond what the capture has half way through; a program hears of it by a signal."""
    heard = []
    signal.signal(signal.SIGXFSZ, lambda *_: heard.append("signal"))

    def limit(i, _):
        if i == ROUNDS // 2:
            size = os.stat(os.environ["RECORDED"]).st_size + int(os.environ["ROOM"])
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    talk(port, limit)
    assert not heard, heard
    # Its own limit is as it was.
    with open(os.environ["OWN"], "wb", buffering=0) as own:
        try:
            for _ in range(100):
                own.write(bytes(100_000))
            raise AssertionError("no limit")
        except OSError:
            pass
    assert heard, "its own file brings the signal"


def play_closing(port):
    """Closes all that it has not opened, by libc and behind the library's back, and has other files there then."""
    libc = ctypes.CDLL(None, use_errno=True)
    inside = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_uint, ctypes.c_uint, ctypes.c_uint)
    # mov eax, 436; syscall; ret
    code = b"\xb8" + CLOSE_RANGE.to_bytes(4, "little") + b"\x0f\x05\xc3"
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    raw_close_range = inside(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    own = os.environ["OWN"]
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]

    def link(n):
        try:
            return os.readlink(f"/proc/self/fd/{n}")
        except OSError:
            return ""

    def close(i, connection):
        if i not in (3, 6, 9):
            return
        recorded = [n for n in map(int, os.listdir("/proc/self/fd")) if re.search(r"client\.(pcap|trace)$", link(n))]
        assert len(recorded) == 2 and min(recorded) > 1000, recorded
        if i == 3:
            assert libc.close_range(connection + 1, 0xffffffff, 0) == 0
        elif i == 6:
            assert raw_close_range(connection + 1, 0xffffffff, 0) == 0
        else:
            os.closerange(connection + 1, most)
        file = os.open(own, os.O_RDWR | os.O_CREAT, 0o600)
        for n in recorded:
            assert link(n) == "", link(n)
            os.dup2(file, n)

    talk(port, close)
    assert os.stat(own).st_size == 0, "octets in the program's own file"


def forbid_recording():
    """A filter that kills for what only who records asks: the time of day by the instruction, and which signals are pending."""
    load, equal, answer = 0x20, 0x15, 0x06
    kill, allow = 0x80000000, 0x7FFF0000
    program = [(load, 0, 0, 0), (equal, 4, 0, 127), (equal, 0, 2, 228), (load, 0, 0, 16), (equal, 1, 0, 0), (answer, 0, 0, allow),
               (answer, 0, 0, kill)]
    code = b"".join(struct.pack("HBBI", *one) for one in program)
    libc = ctypes.CDLL(None, use_errno=True)
    text = ctypes.create_string_buffer(code)
    filter_of = struct.pack("HxxxxxxP", len(program), ctypes.addressof(text))
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    assert libc.prctl(22, 2, filter_of, 0, 0) == 0  # PR_SET_SECCOMP


def play_filtered(port):
    talk(port, lambda i, _: forbid_recording() if i == ROUNDS // 2 else None)


def play_filtered_before(port):
    forbid_recording()
    os.execv(sys.executable, [sys.executable, THIS, "play", "client", port])


def play_half_closed(port):
    """Reads on where it has said that it would not: bytes that come are no end of the peer's."""
    with socket.create_connection(("127.0.0.1", int(port))) as connection:
        connection.sendall(message(0))
        assert receive(connection, 1) == message(0)
        connection.shutdown(socket.SHUT_RD)
        assert connection.recv(1) == b""
        for i in range(1, ROUNDS):
            connection.sendall(message(i))
            got = b""
            while len(got) < len(message(i)):
                got += connection.recv(len(message(i)) - len(got))
            assert got == message(i)


def play_dead_port(port):
    """A connection that a filter of rules leaves plain."""
    with socket.create_connection(("127.0.0.1", int(port))) as connection:
        connection.sendall(b"plain")


class Recording(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ddpsock-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        registry = os.path.join(self.folder, "registry")
        os.mkdir(registry)
        os.chmod(registry, 0o1777)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("DDPSOCK_")}
        self.env |= {"DDPSOCK_REGISTRY_DIR": registry, "OWN": self.path("own")}

    def path(self, name):
        return os.path.join(self.folder, name)

    def text(self, name):
        with open(self.path(name), encoding="ascii") as file:
            return file.read()

    def words(self, engine, name, options=()):
        column = ["--prefer"] if engine == "prefer" else ["--require", "--engine", engine]
        files = ["--pcap", self.path(name + ".pcap"), "--trace", self.path(name + ".trace")] if name else []
        return [DDPRUN, *column, *files, *options, "--"]

    def start(self, engine, name, command, **more):
        program = subprocess.Popen([*self.words(engine, name), *command], env=self.env, stdout=subprocess.PIPE, text=True, **more)
        self.addCleanup(program.stdout.close)
        self.addCleanup(program.kill)
        return program

    def server(self, engine, name, task="server"):
        program = self.start(engine, name, [sys.executable, THIS, "play", task])
        return program, int(program.stdout.readline())

    def run_client(self, engine, name, port, task="client", before=()):
        command = [*self.words(engine, name), *before, sys.executable, THIS, "play", task, str(port)]
        subprocess.run(command, env=self.env, timeout=60, check=True)

    def of_children(self, name):
        return sorted(entry for entry in os.listdir(self.folder) if re.fullmatch(re.escape(name) + r"\.\d+", entry))

    def judged(self, name, port, **expected):
        return decode.check(self.path(name), port, **expected)

    def bytes_of(self, name, port):
        [connection] = self.judged(name, port, connections=1).connections
        return connection.to_server.payload_bytes, connection.to_client.payload_bytes

    def exchange(self, engine, task="client", before=()):
        server, port = self.server(engine, "server")
        self.run_client(engine, "client", port, task, before)
        self.assertEqual(server.wait(60), 0)
        return port

    def test_both_ends_in_each_engine(self):
        for engine in ["user", "shm", "prefer"]:
            with self.subTest(engine):
                port = self.exchange(engine)
                for name in ["server", "client"]:
                    self.assertEqual(self.bytes_of(name + ".pcap", port), (SENT, SENT))
                    trace = self.text(name + ".trace")
                    role = "initiator" if name == "client" else "responder"
                    self.assertIn(f" started as {role}: ", trace)
                    self.assertRegex(trace, rf"fd \d+ 127\.0\.0\.1:\d+ > 127\.0\.0\.1:\d+ sent end\n")
                    self.assertIn(" received end\n", trace)
                    self.assertIn(" closed\n", trace)
                    for way in ["sent", "received"]:
                        sizes = re.findall(rf" {way} Send of (\d+) bytes( in memory)?\n", trace)
                        self.assertEqual(sum(int(size) for size, _ in sizes), SENT)
                        in_memory = sum(int(size) for size, where in sizes if where)
                        self.assertEqual(in_memory > SENT // 2, engine != "user", trace)
                self.assertEqual(self.of_children("server.pcap") + self.of_children("client.trace"), [])

    def test_what_lies_in_memory_is_numbered_behind_what_the_wire_has_carried(self):
        port = self.exchange("shm")
        command = [*decode.TSHARK, "-r", self.path("client.pcap"), "-Y", f"tcp.dstport=={port}", "-T", "fields", "-e", "iwarp_ddp.msn"]
        fields = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=60, check=False).stdout
        numbers = [int(n, 0) for n in fields.replace(",", " ").split()]
        self.assertGreater(len(numbers), ROUNDS)
        self.assertEqual(numbers, list(range(1, len(numbers) + 1)))

    def test_a_reader_of_small_pieces_records_as_much_as_its_writer(self):
        server, port = self.server("shm", "server", "nibbling_server")
        self.run_client("shm", "client", port)
        self.assertEqual(server.wait(60), 0)
        sizes = [os.stat(self.path(f"{name}.pcap")).st_size for name in ("client", "server")]
        self.assertLess(max(sizes), 1.2 * min(sizes))
        self.assertEqual(self.bytes_of("server.pcap", port), (SENT, SENT))

    def test_a_filter_that_comes_later(self):
        for engine in ["user", "shm"]:
            with self.subTest(engine):
                self.exchange(engine, "filtered")
                self.assertIn("nothing more is written: the program has a seccomp filter", self.text("client.trace"))

    def test_a_filter_from_before(self):
        self.exchange("user", "filtered_before")

    def test_an_end_that_is_not_the_peers(self):
        server, port = self.server("user", "server")
        self.run_client("user", "client", port, "half_closed")
        self.assertEqual(server.wait(60), 0)
        self.assertNotIn("received end", self.text("client.trace"))

    def test_another_users_file(self):
        if os.geteuid() != 0:
            self.skipTest("only the superuser makes files for others")
        with open(self.path("theirs"), "wb"):
            os.chown(self.path("theirs"), 65534, 65534)
        done = subprocess.run([DDPRUN, "--pcap", self.path("theirs"), "true"], env=self.env, text=True, stderr=subprocess.PIPE,
                              timeout=60, check=False)
        self.assertEqual(done.returncode, FAILED)
        self.assertIn("somebody else's", done.stderr)

    def test_programs_from_elsewhere(self):
        if not shutil.which("curl"):
            self.skipTest("curl is not installed")
        content = os.urandom(300_000)
        with open(self.path("content"), "wb") as file:
            file.write(content)
        for engine in ["user", "shm"]:
            with self.subTest(engine):
                command = [sys.executable, "-u", "-m", "http.server", "--bind", "127.0.0.1", "-d", self.folder, "0"]
                server = self.start(engine, "http", command, stderr=subprocess.DEVNULL)
                port = int(re.search("Serving .* port ([0-9]+)", server.stdout.readline())[1])
                command = [*self.words(engine, "curl"), "curl", "-s", "-S", f"http://127.0.0.1:{port}/content"]
                got = subprocess.run(command, env=self.env, stdout=subprocess.PIPE, timeout=60, check=True).stdout
                self.assertEqual(got, content)
                server.terminate()
                server.wait(60)
                # It takes as much as it was told of, and no end.
                [connection] = self.judged("curl.pcap", port, connections=1, is_cut=True).connections
                self.assertIn(connection.to_client.payload_bytes - len(content), range(1, 1000))
                self.assertIn(connection.to_server.payload_bytes, range(1, 1000))

    def test_a_forked_child_has_its_own(self):
        for engine in ["user", "shm"]:
            with self.subTest(engine):
                server, port = self.server(engine, "server", "forking_server")
                self.run_client(engine, "client", port)
                self.assertEqual(server.wait(60), 0)
                [child] = self.of_children("server.pcap")
                first = sum(len(message(i)) for i in range(3))
                # The parent's has no end: the connection goes on in the child.
                parents = self.judged("server.pcap", port, connections=1, is_cut=True).connections[0]
                self.assertEqual((parents.to_server.payload_bytes, parents.to_client.payload_bytes), (first, first))
                self.assertEqual(self.bytes_of(child, port), (SENT - first, SENT - first))
                os.remove(self.path(child))

    def test_a_child_that_may_make_no_file_appends_to_its_parents(self):
        if os.geteuid() != 0:
            self.skipTest("only the superuser can become another user")
        server, port = self.server("user", "server", "dropping_server")
        self.run_client("user", "client", port)
        self.assertEqual(server.wait(60), 0)
        self.assertEqual(self.of_children("server.pcap"), [])
        self.assertEqual(self.bytes_of("server.pcap", port), (SENT, SENT))

    def test_what_is_executed(self):
        port = self.exchange("user", before=["sh", "-c", '"$@"; true', "sh"])
        [capture], [trace] = self.of_children("client.pcap"), self.of_children("client.trace")
        self.assertEqual(self.bytes_of(capture, port), (SENT, SENT))
        self.assertIn(" started as initiator: ", self.text(trace))
        port = self.exchange("user", before=["sh", "-c", 'exec "$@"', "sh"])
        self.assertEqual(self.bytes_of("client.pcap", port), (SENT, SENT))

    def test_connections_that_stay_plain(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.run_client("prefer", "client", listener.getsockname()[1], "dead_port")
        self.assertRegex(self.text("client.trace"), r"fd \d+ \S+ > \S+ plain TCP: \w+")

    def test_a_file_that_cannot_be_written_ends_ddprun(self):
        os.mkdir(self.path("folder"))
        os.mkfifo(self.path("fifo"))
        os.symlink("elsewhere", self.path("link"))
        cases = {"/nonexistent/file": "No such file", self.path("folder"): "Is a directory", "/dev/full": "not a regular file",
                 self.path("fifo"): "", self.path("link"): "symbolic link", "/proc/version": ""}
        for option in ["--pcap", "--trace"]:
            for path, why in cases.items():
                with self.subTest(option=option, path=path):
                    done = subprocess.run([DDPRUN, option, path, "touch", self.path("ran")], env=self.env, text=True,
                                          stderr=subprocess.PIPE, timeout=60, check=False)
                    self.assertEqual(done.returncode, FAILED, done.stderr)
                    self.assertIn(f"ddprun: {option}: {path}: ", done.stderr)
                    self.assertIn(why, done.stderr)
                    self.assertFalse(os.path.exists(self.path("ran")))
        both = [DDPRUN, "--pcap", self.path("one"), "--trace", self.path("one"), "true"]
        self.assertEqual(subprocess.run(both, env=self.env, stderr=subprocess.DEVNULL, timeout=60, check=False).returncode, FAILED)

    def test_a_limit_that_is_reached_later(self):
        self.env["RECORDED"] = self.path("client.pcap")
        for engine, room in [("user", "0"), ("user", "1000"), ("shm", "0")]:
            with self.subTest(engine, room=room):
                self.env["ROOM"] = room
                port = self.exchange(engine, "limited")
                seen = self.judged("client.pcap", port, connections=1, is_cut=True).connections[0]
                half = sum(len(message(i)) for i in range(ROUNDS // 2))
                self.assertEqual(seen.to_server.payload_bytes, half)
                self.assertEqual(self.text("client.trace").count("client.pcap: nothing more is written: "), 1)
                self.assertIn(" closed\n", self.text("client.trace"))
                self.assertEqual(self.bytes_of("server.pcap", port), (SENT, SENT))

    def test_a_disk_that_is_full_later(self):
        """On a file system of its own, of 256 KB."""
        small = self.path("small")
        os.mkdir(small)
        words = [*self.words("user", "")[:-1], "--pcap", f"{small}/client.pcap", "--trace", self.path("client.trace"), "--"]
        script = f'mount -t tmpfs -o size=256k none "{small}" && "$@" && cp {small}/client.pcap "{self.folder}"'
        unshare = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--map-root-user"]
        if subprocess.run([*unshare, "mount", "-t", "tmpfs", "none", small], stderr=subprocess.DEVNULL, check=False).returncode:
            self.skipTest("no mount namespace may be made here")
        server, port = self.server("user", "server")
        command = [*unshare, "sh", "-c", script, "sh", *words, sys.executable, THIS, "play", "client", str(port)]
        subprocess.run(command, env=self.env, timeout=60, check=True)
        self.assertEqual(server.wait(60), 0)
        seen = self.judged("client.pcap", port, connections=1, is_cut=True).connections[0]
        self.assertIn(seen.to_server.payload_bytes, range(50_000, SENT))
        self.assertIn("nothing more is written: No space left", self.text("client.trace"))

    def test_a_program_that_closes_what_it_has_not_opened(self):
        for engine in ["user", "shm"]:
            with self.subTest(engine):
                port = self.exchange(engine, "closing")
                self.assertEqual(self.bytes_of("client.pcap", port), (SENT, SENT))

    def test_messages(self):
        for engine, words in {"user": ["--engine", "user"], "shm": []}.items():
            with self.subTest(engine):
                names = ["served", "put"]
                files = {n: ["--pcap", self.path(n + ".pcap"), "--trace", self.path(n + ".trace")] for n in names}
                program = os.path.join(EXAMPLES, "keyvalue")
                server = subprocess.Popen([DDPRUN, "--off", *words, *files["served"], "--", program, "serve", "0"], env=self.env,
                                          stdout=subprocess.PIPE, text=True)
                self.addCleanup(server.stdout.close)
                self.addCleanup(server.kill)
                port = int(re.search(r"\d+", server.stdout.readline()).group())
                command = [DDPRUN, "--off", *words, *files["put"], "--", program, "put", "127.0.0.1", str(port), "apple", "green"]
                subprocess.run(command, env=self.env, stdout=subprocess.DEVNULL, timeout=60, check=True)
                server.terminate()
                server.wait(60)
                [connection] = self.judged("put.pcap", port, connections=1, is_cut=True).connections
                self.assertGreater(connection.to_server.payload_bytes, 0)
                trace = self.text("put.trace")
                self.assertRegex(trace, r" qp 1 start initiator \S+ > \S+ ird ")
                self.assertRegex(trace, r" qp 1 post Send id ")


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] == "play":
        globals()["play_" + sys.argv[2]](*sys.argv[3:])
    else:
        DDPRUN, EXAMPLES, DECODE = sys.argv[1:4]
        del sys.argv[1:4]
        if not shutil.which("tshark"):
            print("skipped: tshark is not installed")
            sys.exit(77)
        sys.path.insert(0, DECODE)
        import decode
        unittest.main()
