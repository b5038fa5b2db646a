#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""ddp-rping against itself, and against peers that do not keep to the protocol, on loopback.

    rping_test.py DDP_RPING FRAMES_DIR [UNITTEST ARGUMENT...]
"""

import contextlib
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest

RPING = os.path.abspath(sys.argv.pop(1))
sys.path.insert(0, sys.argv.pop(1))

import frames

HOST = "127.0.0.1"
LIMIT = 60  # seconds; nothing here takes a tenth of it
STAG, TO = 0x1234, 0x7000
REQUEST = frames.mpa_start(frames.REQUEST_KEY, private_data=bytes.fromhex("00010001"))
REPLY = frames.mpa_start(frames.REPLY_KEY, private_data=bytes.fromhex("00010001"))
GO_ON = bytes(16)


def advert(size, stag=STAG, to=TO):
    return struct.pack(">QII", to, stag, size)


def ping_text(size, number):
    head = b"rdma-ping-%d: " % number
    letters = bytes(65 + (number + i) % 58 for i in range(max(0, size - len(head))))
    return (head + letters)[:size - 1].decode()


class Server:
    """`ddp-rping -s` on a port of its own."""

    def __init__(self, *options, host=HOST):
        self._process = subprocess.Popen([RPING, "-s", "-d", "-p", "0", "-a", host, *options], stdin=subprocess.DEVNULL,
                                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._log = [self._process.stderr.readline()]
        self.port = int(re.search(r"listening on port (\d+)", self._log[0])[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.communicate()

    def read_log_until(self, pattern):
        deadline = time.monotonic() + LIMIT
        while not re.search(pattern, self._log[-1]):
            if not select.select([self._process.stderr], [], [], deadline - time.monotonic())[0]:
                raise AssertionError(f"no line like {pattern!r} came: {self._log}")
            line = self._process.stderr.readline()
            if not line:
                raise AssertionError(f"no line like {pattern!r}: {self._log}")
            self._log.append(line)

    def kill(self, number):
        self._process.send_signal(number)

    def wait(self):
        """Status, standard output, standard error."""
        output, errors = self._process.communicate(timeout=LIMIT)
        return self._process.returncode, output, "".join(self._log) + errors


def start_client(port, *options, host=HOST):
    return subprocess.Popen([RPING, "-c", "-a", host, "-p", str(port), *options], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run_client(port, *options, host=HOST):
    client = start_client(port, *options, host=host)
    output, errors = client.communicate(timeout=LIMIT)
    return client.returncode, output, errors


class Peer:
    """The other end of a connection, played by hand."""

    def __init__(self, connection):
        self.socket = connection
        self.socket.settimeout(LIMIT)
        self.msn = 0

    def say(self, octets):
        self.socket.sendall(octets)

    def send(self, payload):
        self.msn += 1
        self.say(frames.send_fpdu(payload, self.msn))

    def hear(self, size):
        octets = b""
        while len(octets) < size:
            more = self.socket.recv(size - len(octets))
            if not more:
                raise EOFError(f"closed after {octets!r}")
            octets += more
        return octets

    def hear_start(self):
        header = self.hear(20)
        return header + self.hear(struct.unpack(">H", header[18:])[0])

    def hear_fpdu(self):
        """Opcode and ULPDU."""
        length = struct.unpack(">H", self.hear(2))[0]
        ulpdu = self.hear(length)
        self.hear(-(2 + length) % 4 + 4)
        return ulpdu[1] & 0xF, ulpdu

    def expect(self, opcode):
        got, ulpdu = self.hear_fpdu()
        while got == frames.WRITE and len(ulpdu) == 14:  # of no octets: we are slow (doc/decisions/0005-nudge.md)
            got, ulpdu = self.hear_fpdu()
        if got != opcode:
            raise AssertionError(f"opcode {got} instead of {opcode}: {ulpdu.hex()}")
        return ulpdu

    def hear_end(self):
        """What still comes until the other side has closed or reset."""
        octets = b""
        with contextlib.suppress(ConnectionResetError):
            while more := self.socket.recv(65536):
                octets += more
        return octets

    def reset(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


class PairTest(unittest.TestCase):
    def pair(self, server_options=(), client_options=(), host=HOST):
        with Server(*server_options, host=host) as server:
            client = run_client(server.port, *client_options, host=host)
            return server.wait(), client

    def assert_ok(self, *results):
        for status, _, errors in results:
            self.assertEqual(status, 0, errors)

    def test_pings_of_all_sizes_come_back(self):
        with Server("-P", "-V", "-S", str(1 << 20), "--wait", "1") as server:
            for size in (1, 2, 12, 13, 14, 64, 1000, 1440, 1441, 4096, 65535, 65536, 65537, 1 << 20):
                with self.subTest(size=size):
                    self.assert_ok(run_client(server.port, "-V", "-C", "3", "-S", str(size)))
            self.assert_ok(server.wait())

    def test_prints_what_rping_prints(self):
        server, client = self.pair(["-v", "-C", "60"], ["-v", "-C", "60", "-S", "40"])
        self.assert_ok(server, client)
        texts = [ping_text(40, n) for n in range(60)]
        self.assertEqual(client[1].splitlines(), [f"ping data: {t}" for t in texts])
        self.assertEqual(server[1].splitlines(), [f"server ping data: {t}" for t in texts])
        self.assertEqual(client[2], "")

    def test_crc_is_off_only_if_both_say_so(self):
        for server_flag, client_flag, word in (("--crc", "--crc", "on"), ("--no-crc", "--crc", "on"),
                                               ("--crc", "--no-crc", "on"), ("--no-crc", "--no-crc", "off")):
            with self.subTest(server=server_flag, client=client_flag):
                server, client = self.pair([server_flag, "-V"], [client_flag, "-V", "-d", "-C", "2", "-S", "5000"])
                self.assert_ok(server, client)
                self.assertIn(f"CRC {word}", server[2])
                self.assertIn(f"CRC {word}", client[2])

    def test_speaks_each_revision(self):
        for revision in "0", "1", "2":
            with self.subTest(revision=revision):
                server, client = self.pair(["-V"], ["--mpa-rev", revision, "-V", "-d", "-C", "2"])
                self.assert_ok(server, client)
                # Revision 0 is answered with 0 or 1.
                self.assertRegex(client[2], "MPA revision [01]," if revision == "0" else f"MPA revision {revision},")

    def test_peer_to_peer_with_each_rtr_message(self):
        for rtr in "send", "write", "read", "write,read":
            with self.subTest(rtr=rtr):
                server, client = self.pair(["-V"], ["--rtr", rtr, "-V", "-d", "-C", "2"])
                self.assert_ok(server, client)
                self.assertIn("peer to peer", client[2])
                self.assertIn("peer to peer", server[2])
        server, client = self.pair(["--rtr", "read", "--wait", "1"], ["--rtr", "write", "-C", "1"])
        self.assertEqual((server[0], client[0]), (1, 1))
        self.assertIn("no RTR message", server[2])

    def test_private_data_goes_both_ways(self):
        server, client = self.pair(["--private-data", "to the client"],
                                   ["--private-data", "to the\tserver", "-d", "-C", "1"])
        self.assert_ok(server, client)
        self.assertIn("the client's private data: to the\\x09server\n", server[2])
        self.assertIn("the server's private data: to the client\n", client[2])

    def test_ipv6(self):
        try:
            with socket.socket(socket.AF_INET6) as probe:
                probe.bind(("::1", 0))
        except OSError as e:
            self.skipTest(f"this host has no IPv6: {e}")
        self.assert_ok(*self.pair(["-V"], ["-V", "-C", "2"], host="::1"))
        with Server("-P", "-V", "--wait", "1", host="::") as server:
            for host in "::1", HOST:
                self.assert_ok(run_client(server.port, "-V", "-C", "1", host=host))
            _, _, errors = result = server.wait()
            self.assert_ok(result)
            for host in "::1", HOST:
                self.assertIn(f"a connection from {host} port", errors)

    def test_connects_from_the_source_address(self):
        server, client = self.pair([], ["-I", "127.0.0.3", "-C", "1"])
        self.assert_ok(server, client)
        self.assertIn("a connection from 127.0.0.3 port", server[2])

    def test_persistent_server_serves_clients_together(self):
        with Server("-P", "-V", "--wait", "2") as server:
            # One that says nothing must not hold the others up.
            with socket.create_connection((HOST, server.port)):
                clients = [start_client(server.port, "-V", "-C", "50", "-S", str(1000 * (n + 1))) for n in range(6)]
                for client in clients:
                    _, errors = client.communicate(timeout=LIMIT)
                    self.assertEqual(client.returncode, 0, errors)
            status, _, errors = server.wait()
        self.assertEqual(status, 0, errors)
        self.assertEqual(errors.count("closed after 50 pings"), 6)

    def test_persistent_server_outlives_a_client_that_fails(self):
        with Server("-P", "-S", "100", "--wait", "1") as server:
            self.assertEqual(run_client(server.port, "-C", "1", "-S", "101")[0], 1)
            self.assert_ok(run_client(server.port, "-C", "1", "-S", "100"))
            status, _, errors = server.wait()
        self.assertEqual(status, 1)
        self.assertIn("1 of 2 clients failed", errors)

    def test_client_without_count_goes_on_until_killed(self):
        with Server() as server:
            client = start_client(server.port, "-v", "-S", "1000")
            for _ in range(100):
                self.assertTrue(client.stdout.readline().startswith("ping data: rdma-ping-"))
            client.kill()
            client.communicate(timeout=LIMIT)
            server.wait()

    def test_server_expects_its_count(self):
        for served in "2", "4":
            server, _ = self.pair(["-C", "3"], ["-C", served])
            self.assertEqual(server[0], 1)
            self.assertIn(f"closed after {served} pings, expected 3", server[2])

    def test_server_names_the_size_that_is_too_much(self):
        server, client = self.pair([], ["-C", "1", "-S", "65537"])
        self.assertEqual((server[0], client[0]), (1, 1))
        self.assertIn("advertises 65537 bytes to read, and -S allows 65536", server[2])
        self.assertIn("the server closed before", client[2])


class UsageTest(unittest.TestCase):
    def run_tool(self, *options):
        done = subprocess.run([RPING, *options], capture_output=True, text=True, timeout=LIMIT, stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout, done.stderr

    def test_mistakes_are_named(self):
        for options, word in ((["-a", HOST], "-c or -s"), (["-c", "-s"], "-c or -s"), (["-c"], "-a ADDRESS"),
                              (["-c", "-a", HOST, "-P"], "server's"), (["-s", "--mpa-rev", "1"], "client's"),
                              (["-c", "-a", HOST, "-S", "0"], "--size"), (["-c", "-a", HOST, "-S", "67108865"], "--size"),
                              (["-c", "-a", HOST, "-C", "-1"], "--count"), (["-s", "-I", HOST], "-I"),
                              (["-c", "-a", HOST, "--timeout", "0"], "--timeout"), (["-s", "--peer-to-peer"], "client's"),
                              (["-c", "-a", HOST, "-p", "65536"], "--port"), (["-c", "-a", HOST, "--rtr", "x"], "--rtr"),
                              (["-c", "-a", HOST, "--rtr", "read", "--mpa-rev", "1"], "revision 2"),
                              (["-s", "--private-data", "x" * 509], "at most 508"), (["-s", "more"], "more")):
            with self.subTest(options=options):
                status, output, errors = self.run_tool(*options)
                self.assertEqual((status, output), (2, ""))
                self.assertIn(word, errors)

    def test_help_and_version(self):
        self.assertIn("--timeout", self.run_tool("--help")[1])
        self.assertRegex(self.run_tool("--version")[1], r"^ddp-rping \d+\.\d+")

    def test_what_cannot_be_reached_is_named(self):
        with socket.socket() as closed:
            closed.bind((HOST, 0))
            port = str(closed.getsockname()[1])
            status, _, errors = self.run_tool("-c", "-a", HOST, "-p", port)
            self.assertEqual(status, 1)
            self.assertIn(f"{HOST} port {port}: connecting: Connection refused", errors)
            self.assertIn("is the server running", errors)
            closed.listen()
            status, _, errors = self.run_tool("-s", "-a", HOST, "-p", port)
            self.assertEqual(status, 1)
            self.assertIn(f"{HOST} port {port}: binding: Address already in use", errors)
        self.assertEqual(self.run_tool("-c", "-a", "no.such.host.invalid")[0], 1)

    def test_server_gives_up_waiting_when_told(self):
        for options in ["-s"], ["-s", "-P"]:
            status, _, errors = self.run_tool(*options, "-a", HOST, "-p", "0", "--wait", "0.1")
            self.assertEqual(status, 1)
            self.assertIn("no client came in time", errors)


class HostileClientTest(unittest.TestCase):
    """What a client may do to `ddp-rping -s`. All of it ends in bounded time."""

    @contextlib.contextmanager
    def served(self, why, *options):
        """A Peer after start-up; afterwards the server must fail and say `why`."""
        began = time.monotonic()
        with Server("-V", "--timeout", "1", *options) as server:
            with socket.create_connection((HOST, server.port)) as connection:
                peer = Peer(connection)
                peer.say(REQUEST)
                self.assertEqual(peer.hear_start()[:16], frames.REPLY_KEY)
                yield peer
            status, _, errors = server.wait()
        self.assertEqual(status, 1, errors)
        self.assertRegex(errors, why)
        self.assertLess(time.monotonic() - began, 10)

    def answer_read(self, peer, size, number=0):
        """Does as a good client until the data have been read."""
        peer.send(advert(size))
        request = peer.expect(frames.READ_REQUEST)
        sink_stag, sink_to = struct.unpack(">IQ", request[18:30])
        data = ping_text(size, number).encode() + b"\0"
        peer.say(frames.tagged_fpdu(frames.READ_RESPONSE, data, sink_stag, sink_to))
        self.assertEqual(peer.expect(frames.SEND)[18:], GO_ON)

    def test_the_good_one(self):
        with Server("-V", "-C", "1") as server, socket.create_connection((HOST, server.port)) as connection:
            peer = Peer(connection)
            peer.say(REQUEST)
            peer.hear_start()
            self.answer_read(peer, 64)
            peer.send(advert(64))
            write = peer.expect(frames.WRITE)
            self.assertEqual(write[2:14], struct.pack(">IQ", STAG, TO))
            self.assertEqual(write[14:], ping_text(64, 0).encode() + b"\0")
            self.assertEqual(peer.expect(frames.SEND)[18:], GO_ON)
            peer.socket.shutdown(socket.SHUT_WR)
            self.assertEqual(peer.hear_end(), b"")
            self.assertEqual(server.wait()[0], 0)

    def test_silence(self):
        with self.served("ping 0: waiting for the client's source: nothing came within 1 s") as peer:
            self.assertEqual(peer.hear_end(), b"")

    def test_sizes_that_cannot_be(self):
        for size, why in ((0, "0 bytes"), (65537, "65537 bytes"), (0xFFFFFFFF, "4294967295 bytes")):
            with self.subTest(size=size), self.served(f"the client advertises {why} to read") as peer:
                peer.send(advert(size))
                self.assertEqual(peer.hear_end(), b"")

    def test_memory_beyond_64_bits(self):
        with self.served("beyond 64 bits") as peer:
            peer.send(advert(64, to=2**64 - 63))
            self.assertEqual(peer.hear_end(), b"")

    def test_messages_of_another_length(self):
        for length in 0, 15, 17, 5000:
            with self.subTest(length=length):
                # A longer one does not fit the receive that is posted: the engine's own Terminate.
                why = f"the peer sent {length} bytes" if length < 16 else "ended with a Terminate of ours"
                with self.served(why) as peer:
                    peer.send(bytes(length))
                    peer.hear_end()

    def test_a_read_that_is_never_answered(self):
        with self.served("reading the client's source: nothing came within 1 s") as peer:
            peer.send(advert(64))
            peer.expect(frames.READ_REQUEST)
            peer.hear_end()

    def test_data_that_are_wrong(self):
        with self.served("ping 0: byte 0 of 4 is 0x78 and should be 0x72") as peer:
            peer.send(advert(4))
            request = peer.expect(frames.READ_REQUEST)
            sink_stag, sink_to = struct.unpack(">IQ", request[18:30])
            peer.say(frames.tagged_fpdu(frames.READ_RESPONSE, b"xyz\0", sink_stag, sink_to))
            peer.hear_end()

    def test_a_read_response_that_was_not_asked_for(self):
        for what, change in (("stag", (1, 0, 64)), ("to", (0, 1, 64)), ("more", (0, 0, 65)), ("less", (0, 0, 63))):
            with self.subTest(what), self.served("ended with a Terminate of ours") as peer:
                peer.send(advert(64))
                request = peer.expect(frames.READ_REQUEST)
                sink_stag, sink_to = struct.unpack(">IQ", request[18:30])
                peer.say(frames.tagged_fpdu(frames.READ_RESPONSE, bytes(change[2]), sink_stag ^ change[0], sink_to + change[1]))
                peer.hear_end()

    def test_a_sink_that_is_too_small(self):
        with self.served("advertises 63 bytes to write 64 bytes into") as peer:
            self.answer_read(peer, 64)
            peer.send(advert(63))
            self.assertEqual(peer.hear_end(), b"")

    def test_a_write_into_the_servers_memory(self):
        with self.served("ended with a Terminate of ours") as peer:
            peer.send(advert(64))
            request = peer.expect(frames.READ_REQUEST)
            sink_stag, sink_to = struct.unpack(">IQ", request[18:30])
            peer.say(frames.tagged_fpdu(frames.WRITE, bytes(64), sink_stag, sink_to))
            peer.hear_end()

    def test_more_messages_than_fit(self):
        with self.served("ended with a Terminate of ours") as peer:
            for _ in range(10):
                peer.send(advert(64))
            peer.hear_end()

    def test_bytes_that_are_no_frame(self):
        with self.served("ended with a Terminate of ours|was lost") as peer:
            peer.say(b"GET / HTTP/1.0\r\n\r\n" * 4)
            peer.hear_end()

    def test_a_bad_crc(self):
        with self.served("ended with a Terminate of ours") as peer:
            peer.say(frames.send_fpdu(advert(64), 1, good_crc=False))
            peer.hear_end()

    def test_disconnect_half_way(self):
        with self.served("reading the client's source: the TCP connection was lost") as peer:
            peer.send(advert(64))
            peer.expect(frames.READ_REQUEST)
            peer.socket.shutdown(socket.SHUT_WR)
            peer.hear_end()
        with self.served("the client closed before it advertised its sink") as peer:
            self.answer_read(peer, 64)
            peer.socket.shutdown(socket.SHUT_WR)
            peer.hear_end()
        with self.served("reading the client's source: the TCP connection was lost") as peer:
            peer.send(advert(64))
            peer.expect(frames.READ_REQUEST)
            peer.reset()

    def test_a_terminate(self):
        with self.served("ended by the peer's Terminate") as peer:
            peer.send(advert(64))
            peer.expect(frames.READ_REQUEST)
            # Layer RDMAP, Remote Protection Error, base or bounds; nothing quoted.
            peer.say(frames.untagged_fpdu(frames.TERMINATE, bytes.fromhex("01010000"), 1, qn=2))
            peer.hear_end()

    def test_what_is_no_client_does_not_count(self):
        with Server("-V", "-C", "2", "--timeout", "1") as server:
            for octets in b"GET / HTTP/1.0\r\n\r\n", REQUEST[:22], frames.REPLY, b"":
                with socket.create_connection((HOST, server.port)) as connection:
                    connection.sendall(octets)
                    with contextlib.suppress(OSError):  # it may have been turned away at the first octet
                        connection.shutdown(socket.SHUT_WR)
                    Peer(connection).hear_end()
            # This one says nothing and is turned away for it.
            with socket.create_connection((HOST, server.port)) as connection:
                self.assertEqual(Peer(connection).hear_end(), b"")
            self.assertEqual(run_client(server.port, "-V", "-C", "2")[0], 0)
            status, _, errors = server.wait()
        self.assertEqual(status, 0, errors)
        self.assertEqual(errors.count("turned "), 5, errors)


class HostileServerTest(unittest.TestCase):
    """What a server may do to `ddp-rping -c`."""

    def client(self, play, *options, connections=1):
        """Plays the server for a client: its status and errors."""
        failures = []

        def serve(listener):
            try:
                for _ in range(connections):
                    with listener.accept()[0] as connection:
                        play(Peer(connection))
            except Exception as e:  # told below, in the test's thread
                failures.append(e)

        began = time.monotonic()
        with socket.create_server((HOST, 0)) as listener:
            listener.settimeout(LIMIT)
            server = threading.Thread(target=serve, args=(listener,))
            server.start()
            status, _, errors = run_client(listener.getsockname()[1], "-V", "-C", "1", "--timeout", "1", *options)
            server.join(LIMIT)
        self.assertEqual(failures, [])
        self.assertLess(time.monotonic() - began, 10)
        return status, errors

    def fails(self, why, play, *options, **how):
        status, errors = self.client(play, *options, **how)
        self.assertEqual(status, 1, errors)
        self.assertRegex(errors, why)

    @staticmethod
    def start(peer):
        if peer.hear_start()[:16] != frames.REQUEST_KEY:
            raise AssertionError("no Request")
        peer.say(REPLY)

    @classmethod
    def hear_advert(cls, peer):
        """TO, STag, size."""
        return struct.unpack(">QII", peer.expect(frames.SEND)[18:])

    @classmethod
    def read_source(cls, peer):
        to, stag, size = cls.hear_advert(peer)
        peer.say(frames.read_request(1, size, stag, to))
        data = peer.expect(frames.READ_RESPONSE)[14:]
        peer.send(GO_ON)
        return data

    def test_the_good_one(self):
        def play(peer):
            self.start(peer)
            data = self.read_source(peer)
            to, stag, _ = self.hear_advert(peer)
            peer.say(frames.tagged_fpdu(frames.WRITE, data, stag, to))
            peer.send(GO_ON)
            peer.hear_end()
        self.assertEqual(self.client(play), (0, ""))

    def test_plain_tcp_server_that_greets(self):
        def play(peer):
            peer.say(b"220 mail.example ESMTP\r\n")
            peer.hear_end()
        self.fails("does not speak MPA.*is that rping's port", play)

    def test_silence_instead_of_a_reply(self):
        self.fails("MPA start-up timed out.*is that rping's port", lambda peer: peer.hear_end())

    def test_close_instead_of_a_reply(self):
        # The first is called again with revision 1.
        self.fails("closed before MPA start-up", lambda peer: peer.hear_start(), connections=2)
        self.fails("closed before MPA start-up", lambda peer: peer.hear_start(), "--mpa-rev", "2")

    def test_rejection(self):
        def play(peer):
            peer.hear_start()
            peer.say(frames.mpa_start(frames.REPLY_KEY, frames.FLAG_CRC | frames.FLAG_REJECT | frames.FLAG_ENHANCED,
                                      bytes.fromhex("00010001") + b"no\n"))
            peer.hear_end()
        self.fails(r"rejected by the peer, which says: no\\x0a", play)

    def test_silence(self):
        def play(peer):
            self.start(peer)
            peer.hear_end()
        self.fails("ping 0: waiting for the server's RDMA Read: nothing came within 1 s", play)

    def test_go_on_without_the_data(self):
        def play(peer):
            self.start(peer)
            for _ in range(2):
                self.hear_advert(peer)
                peer.send(GO_ON)
            peer.hear_end()
        self.fails("ping 0: byte 0 of 64 is 0xff and should be 0x72", play)

    def test_messages_of_another_length(self):
        for length, why in ((0, "the peer sent 0 bytes"), (15, "the peer sent 15 bytes"), (17, "Terminate of ours")):
            def play(peer, length=length):
                self.start(peer)
                self.hear_advert(peer)
                peer.send(bytes(length))
                peer.hear_end()
            self.fails(why, play)

    def test_reads_and_writes_beyond_what_was_advertised(self):
        def read(more, stag_change):
            def play(peer):
                self.start(peer)
                to, stag, size = self.hear_advert(peer)
                peer.say(frames.read_request(1, size + more, stag ^ stag_change, to))
                peer.expect(frames.TERMINATE)
                peer.hear_end()
            return play

        def write(change):
            def play(peer):
                self.start(peer)
                source = self.hear_advert(peer)
                peer.send(GO_ON)
                sink = self.hear_advert(peer)
                stag, to, size = change(source, sink)
                peer.say(frames.tagged_fpdu(frames.WRITE, bytes(size), stag, to))
                peer.expect(frames.TERMINATE)
                peer.hear_end()
            return play

        for play in (read(1, 0), read(2**31, 0), read(0, 1), write(lambda source, sink: (sink[1], sink[0], 65)),
                     write(lambda source, sink: (sink[1], sink[0] + 1, 64)),
                     write(lambda source, sink: (sink[1], sink[0] - 1, 64)),
                     # The source is there to be read only.
                     write(lambda source, sink: (source[1], source[0], 64))):
            self.fails("ended with a Terminate of ours", play)

    def test_disconnect_half_way(self):
        def close_before_read(peer):
            self.start(peer)
            self.hear_advert(peer)

        def close_before_write(peer):
            self.start(peer)
            self.read_source(peer)
            self.hear_advert(peer)

        def reset(peer):
            self.start(peer)
            self.hear_advert(peer)
            peer.reset()

        self.fails("the server closed before the server's RDMA Read was done", close_before_read)
        self.fails("the server closed before the server's RDMA Write was done", close_before_write)
        self.fails("the TCP connection was lost", reset)

    def test_server_that_never_closes(self):
        def play(peer):
            self.start(peer)
            data = self.read_source(peer)
            to, stag, _ = self.hear_advert(peer)
            peer.say(frames.tagged_fpdu(frames.WRITE, data, stag, to))
            peer.send(GO_ON)
            peer.hear_end()  # the client's FIN
            time.sleep(2)
        self.fails("closing: the peer does not close within 1 s", play)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
