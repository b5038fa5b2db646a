#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Verdicts rest on decode.py: these captures are broken on purpose, and each must be noticed."""

import contextlib
import io
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

import decode
import fpdus
from frames import (FLAG_CRC, FLAG_ENHANCED, FLAG_REJECT, MPA_KEYS, READ_RESPONSE, REPLY, REPLY_KEY, REQUEST, REQUEST_KEY,
                    TERMINATE, WRITE, crc32c, framed, mpa_start, read_request, send_fpdu, tagged_fpdu, untagged_fpdu)
from sample_capture import CLIENT, SERVER, Connection

REJECTION = mpa_start(REPLY_KEY, flags=FLAG_CRC | FLAG_REJECT | FLAG_ENHANCED)


def started(request=REQUEST, reply=REPLY):
    connection = Connection()
    connection.say(CLIENT, request)
    connection.say(SERVER, reply)
    return connection


def started_without_crc():
    return started(*(mpa_start(key, flags=FLAG_ENHANCED) for key in MPA_KEYS))


def with_one_send():
    connection = started()
    connection.say(CLIENT, send_fpdu(b"x" * 64, 1))
    return connection


class CaptureTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = str(pathlib.Path(folder.name) / "sample.pcap")


class DecodeTest(CaptureTest):
    def decoded(self, connection):
        connection.write(self.path)
        return decode.decode(self.path, SERVER[1])

    def test_accounts_for_every_byte_of_a_good_connection(self):
        connection = started()
        # One large FPDU over several segments, and a segment with the tail of one FPDU and the whole of the next.
        connection.say(CLIENT, send_fpdu(b"x" * 61440, 1) + send_fpdu(b"yyyyy", 2), cut=20000)
        connection.say(SERVER, send_fpdu(b"z" * 7, 1))
        result = self.decoded(connection.finish())
        [seen] = result.connections
        self.assertTrue(seen.is_ddp)
        self.assertTrue(seen.is_accounted)
        self.assertEqual((seen.fpdus, result.crc_good, result.crc_bad, result.crc_unchecked), (3, 3, 0, 0))
        self.assertEqual((seen.to_server.payload_bytes, seen.to_client.payload_bytes), (61445, 7))
        self.assertEqual(result.malformed, {})
        self.assertEqual(sum(result.notes.values()), 4)

    def test_names_and_counts_the_operations(self):
        connection = started()
        connection.say(SERVER, read_request(1, 150, 1, 0))
        connection.say(CLIENT, tagged_fpdu(READ_RESPONSE, b"a" * 100, is_last=False) +
                       tagged_fpdu(READ_RESPONSE, b"a" * 50, to=100))
        connection.say(SERVER, tagged_fpdu(WRITE, b"b" * 9))
        [seen] = self.decoded(connection.finish()).connections
        self.assertTrue(seen.is_accounted)
        self.assertEqual(seen.to_server.segments, {"Read Response": 2})
        self.assertEqual(seen.to_server.messages, {"Read Response": 1})
        self.assertEqual(seen.to_server.bytes_of["Read Response"], 150)
        self.assertEqual(seen.to_client.messages, {"Read Request": 1, "Write": 1})
        self.assertEqual(seen.to_client.bytes_of["Write"], 9)
        self.assertEqual(seen.to_server.largest_ulpdu, 114)

    def test_tells_segments_that_do_not_begin_with_a_frame(self):
        connection = started()
        connection.say(CLIENT, send_fpdu(b"x" * 1000, 1), cut=600)
        connection.say(SERVER, send_fpdu(b"x" * 1000, 1) + send_fpdu(b"x" * 1000, 2))
        [seen] = self.decoded(connection.finish()).connections
        self.assertEqual((seen.to_server.unaligned, seen.to_client.unaligned), (1, 0))

    def test_keeps_servers_apart(self):
        connection = with_one_send()
        connection.finish().write(self.path)
        seen = decode.decode(self.path, {SERVER[1], 1})
        self.assertEqual([c.port for c in seen.connections], [SERVER[1]])
        self.assertEqual(len(seen.of_port(SERVER[1]).connections), 1)
        self.assertEqual(seen.of_port(1).connections, [])
        self.assertEqual(seen.of_port(SERVER[1]).fpdus, 1)

    def test_tells_what_start_up_said(self):
        [seen] = self.decoded(started(mpa_start(REQUEST_KEY, flags=FLAG_ENHANCED)).finish()).connections
        self.assertEqual((seen.to_server.revision, seen.to_server.has_crc_flag), (2, False))
        self.assertEqual((seen.to_client.revision, seen.to_client.has_crc_flag), (2, True))

    def test_notices_a_bad_crc(self):
        connection = started()
        connection.say(CLIENT, send_fpdu(b"x" * 64, 1, good_crc=False))
        result = self.decoded(connection.finish())
        self.assertEqual((result.crc_good, result.crc_bad), (0, 1))

    def test_notices_that_crc_is_off(self):
        connection = started_without_crc()
        connection.say(CLIENT, send_fpdu(b"x" * 64, 1))
        result = self.decoded(connection.finish())
        self.assertEqual((result.crc_good, result.crc_unchecked), (0, 1))

    def test_notices_a_segment_missing_from_the_capture(self):
        connection = started()
        connection.say(CLIENT, send_fpdu(b"x" * 64, 1))
        connection.say(CLIENT, send_fpdu(b"y" * 64, 2), lose=True)
        connection.say(CLIENT, send_fpdu(b"z" * 64, 3))
        [seen] = self.decoded(connection.finish()).connections
        self.assertFalse(seen.is_accounted)

    def test_counts_what_tcp_sent_again_once(self):
        connection = with_one_send()
        connection.say_again()
        connection.say(CLIENT, send_fpdu(b"y" * 64, 2))
        [seen] = self.decoded(connection.finish()).connections
        self.assertTrue(seen.is_accounted)
        self.assertEqual((seen.fpdus, seen.crc_good), (2, 2))

    def test_notices_a_capture_that_ends_early(self):
        [seen] = self.decoded(with_one_send()).connections
        self.assertFalse(seen.is_accounted)

    def test_notices_plain_tcp(self):
        connection = Connection()
        connection.say(CLIENT, b"GET / HTTP/1.0\r\n\r\n")
        [seen] = self.decoded(connection.finish()).connections
        self.assertFalse(seen.is_ddp)

    def test_notices_bytes_between_frames(self):
        connection = with_one_send()
        connection.say(CLIENT, b"plain text that is no FPDU at all")
        result = self.decoded(connection.finish())
        self.assertFalse(result.connections[0].is_accounted)

    def test_notices_a_rejecting_reply(self):
        result = self.decoded(started(reply=REJECTION).finish())
        self.assertFalse(result.connections[0].is_ddp)
        self.assertTrue(result.malformed)


class ComplaintsTest(CaptureTest):
    def decoded(self, connection):
        connection.write(self.path)
        return decode.decode(self.path, SERVER[1])

    def accepts(self, decoded, **expected):
        self.assertEqual(list(decode.complaints(decoded, **expected)), [])

    def refuses(self, why, decoded, **expected):
        self.assertRegex("\n".join(decode.complaints(decoded, **expected)), why)

    def test_is_content_with_a_good_connection(self):
        good = self.decoded(with_one_send().finish())
        self.accepts(good, connections=1)
        self.refuses("1 connections, expected 2", good, connections=2)
        self.refuses("expected none", good, crc=False)

    def test_wants_crcs_good_or_off_as_told(self):
        off = started_without_crc()
        off.say(CLIENT, send_fpdu(b"x", 1))
        off = self.decoded(off.finish())
        self.refuses("0 of 1 CRCs good, 0 bad, 1 not used", off)
        self.accepts(off, crc=False)
        self.accepts(off, crc=None)
        bad = with_one_send()
        bad.say(CLIENT, send_fpdu(b"x", 2, good_crc=False))
        bad = self.decoded(bad)
        for crc in (True, False, None):
            self.refuses("1 CRCs are bad", bad, crc=crc, is_cut=True)

    def test_refuses_what_is_not_iwarp(self):
        plain = Connection()
        plain.say(CLIENT, b"GET / HTTP/1.0\r\n\r\n")
        self.refuses("nothing is iWARP", self.decoded(plain.finish()))

    def test_refuses_a_rejected_connection(self):
        rejected = self.decoded(started(reply=REJECTION).finish())
        self.refuses("did not come to DDP", rejected)
        self.refuses("Reject bit", rejected)

    def test_refuses_frames_that_wireshark_calls_malformed(self):
        # An untagged segment that ends inside its DDP header, in a frame that is right by itself.
        connection = with_one_send()
        connection.say(CLIENT, framed(bytes.fromhex("414300000000")))
        self.refuses("Malformed Packet", self.decoded(connection.finish()))

    def test_counts_terminates(self):
        connection = with_one_send()
        # Layer DDP, untagged, no buffer; nothing of the message quoted.
        connection.say(SERVER, untagged_fpdu(TERMINATE, bytes.fromhex("12020000"), 1, qn=2))
        ended = self.decoded(connection.finish())
        self.refuses("1 Terminate messages, expected 0", ended)
        self.accepts(ended, terminates=1)
        self.accepts(ended, terminates=None)

    def test_takes_a_connection_that_was_cut_only_when_told(self):
        cut = self.decoded(with_one_send())
        self.refuses("did not decode every byte", cut)
        self.accepts(cut, is_cut=True)
        self.accepts(self.decoded(with_one_send().reset(CLIENT)))


SENDS = b"".join(send_fpdu(bytes([n]) * 1418, n + 1) for n in range(30))
FRAME = len(SENDS) // 30


def packets_of(connection, octets, cut):
    """Adds what the client says, in packets of `cut`, and takes them out again."""
    before = len(connection.packets)
    connection.say(CLIENT, octets, cut)
    taken = connection.packets[before:]
    del connection.packets[before:]
    return taken


def with_one_octet_wrong(packet):
    return packet[:-9] + bytes([packet[-9] ^ 1]) + packet[-8:]


def with_another_client_port(packet):
    """IPv4's header has 20 octets."""
    return packet[:20] + packet[20:24].replace(CLIENT[1].to_bytes(2), (CLIENT[1] + 1).to_bytes(2)) + packet[24:]


def of_two_processors(spoil=None):
    """As two processors write their segments: those of one between those of the other. `spoil` is one that is not as sent."""
    connection = started()
    packets = packets_of(connection, SENDS, 1448)
    if spoil is not None:
        packets[spoil] = with_one_octet_wrong(packets[spoil])
    early, late = packets[5:12], packets[12:19]
    mixed = [packet for pair in zip(late, early) for packet in pair]
    connection.packets += packets[:5] + mixed + packets[19:]
    return connection


def sent_again(spoil=False):
    """Lost, and sent again in other pieces: one ends in the first octets of an FPDU, the last is new in part."""
    connection = started()
    connection.say(CLIENT, SENDS[:10_000], 1448)
    connection.say(CLIENT, SENDS[10_000:20_000], 1448, lose=True)
    connection.say(CLIENT, SENDS[20_000:30_000], 1448)
    again = bytearray(SENDS)
    again[9_500] ^= spoil
    pieces = (9_000, 9 * FRAME + 700, 13 * FRAME + 4, 30_700)
    for begin, end in zip(pieces, pieces[1:]):
        connection.say_again(CLIENT, bytes(again[begin:end]), 30_000 - begin)
    connection.next[CLIENT] += 700
    connection.say(CLIENT, SENDS[30_700:], 1448)
    return connection


def cut_in_a_length_field():
    connection = started()
    for begin, end in ((0, 2000), (2000, 2 * FRAME + 4), (2 * FRAME + 4, len(SENDS))):
        connection.say(CLIENT, SENDS[begin:end], 1448)
    return connection


class LostBoundariesTest(CaptureTest):
    """Captures in which Wireshark 4.0 loses the frames' boundaries, or might."""

    def decoded(self, connection):
        connection.write(self.path)
        with contextlib.redirect_stderr(io.StringIO()) as said:
            decoded = decode.decode(self.path, SERVER[1])
        self.said = said.getvalue()
        return decoded

    def is_right(self, connection):
        decoded = self.decoded(connection.finish())
        self.assertEqual(list(decode.complaints(decoded)), [])
        self.assertEqual((decoded.fpdus, decoded.crc_good, decoded.payload_bytes), (30, 30, 30 * 1418))

    def refuses(self, why, connection, **expected):
        self.assertRegex("\n".join(decode.complaints(self.decoded(connection.finish()), **expected)), why)

    def test_out_of_order(self):
        self.is_right(of_two_processors())

    def test_sent_again_in_other_pieces(self):
        self.is_right(sent_again())
        self.assertIn("connection 0: segments were sent again or out of order, and Wireshark lost the frames", self.said)

    def test_cut_in_the_first_octets_of_a_frame(self):
        self.is_right(cut_in_a_length_field())
        self.assertIn("connection 0: a segment ends with the first octets of an FPDU, and Wireshark lost", self.said)

    def test_says_nothing_where_wireshark_sees_the_same(self):
        connection = with_one_send()
        connection.say_again()
        self.decoded(connection.finish())
        self.assertEqual(self.said, "")

    def test_an_octet_that_is_wrong(self):
        for spoiled in (11, 25):
            self.refuses("1 CRCs are bad\n29 of 30 CRCs good", of_two_processors(spoiled))

    def test_an_octet_that_is_another_when_sent_again(self):
        self.refuses("1 x segment sent again with other octets", sent_again(spoil=True))

    def test_a_segment_that_is_missing(self):
        connection = of_two_processors()
        del connection.packets[-4]
        self.refuses("did not decode every byte", connection)

    def test_a_frame_that_is_malformed(self):
        wrong = ((bytes.fromhex("4143000000000000"), "Send that ends inside its header"),
                 (bytes.fromhex("c143") + bytes(16), "Send with the wrong kind of header"),
                 (bytes.fromhex("4141") + bytes(16 + 27), "Read Request of 27 octets"),
                 (bytes.fromhex("414d") + bytes(16), "opcode 13"), (b"A", "ULPDU without a header"))
        connection = of_two_processors()
        for ulpdu, _ in wrong:
            connection.say(CLIENT, framed(ulpdu))
        decoded = self.decoded(connection.finish())
        self.assertEqual(decoded.malformed, {why: 1 for _, why in wrong})

    def test_what_wireshark_says_of_other_connections_stays(self):
        connection = of_two_processors().finish()
        bad = started()
        bad.say(CLIENT, framed(bytes.fromhex("414300000000")))
        connection.packets += [with_another_client_port(packet) for packet in bad.finish().packets]
        connection.write(self.path)
        with contextlib.redirect_stderr(io.StringIO()):
            decoded = decode.decode(self.path, SERVER[1])
        self.assertEqual([c.fpdus for c in decoded.connections][0], 30)
        self.assertRegex("\n".join(decode.complaints(decoded)), "Malformed Packet")

    def test_a_difference_where_nothing_was_sent_again(self):
        connection = with_one_send()
        with mock.patch.object(fpdus, "crc32c", return_value=0):
            self.refuses("connection 0 is not what our own reassembly sees: CRCs good: Wireshark 1, ours 0", connection)

    def test_the_crc_itself(self):
        for octets in (b"", b"123456789", SENDS[:77]):
            self.assertEqual(fpdus.crc32c(octets), crc32c(octets))


class FileTest(CaptureTest):
    def refuses(self, why):
        with self.assertRaisesRegex(decode.DecodeError, why):
            decode.check(self.path, SERVER[1])

    def test_returns_what_is_right(self):
        with_one_send().finish().write(self.path)
        self.assertEqual(decode.check(self.path, SERVER[1]).fpdus, 1)

    def test_tells_the_file_and_all_that_is_wrong(self):
        with_one_send().write(self.path)
        with self.assertRaises(decode.DecodeError) as caught:
            decode.check(self.path, SERVER[1], crc=False)
        self.assertRegex(str(caught.exception), f"(?s)^{self.path}:\n.*every byte.*\n.*expected none")

    def test_refuses_a_capture_of_another_port(self):
        with_one_send().finish().write(self.path)
        with self.assertRaisesRegex(decode.DecodeError, "no TCP connection to that port"):
            decode.check(self.path, 1)

    def test_refuses_a_missing_file(self):
        self.refuses("there is no such capture")

    def test_refuses_a_capture_without_packets(self):
        connection = Connection()
        connection.packets.clear()
        connection.write(self.path)
        self.refuses("holds no packet")

    def test_refuses_a_file_that_is_no_capture(self):
        for content in (b"", b"this is not a capture at all\n"):
            pathlib.Path(self.path).write_bytes(content)
            self.refuses("tshark could not read|holds no packet")

    def test_refuses_a_capture_that_is_cut_inside_a_packet(self):
        with_one_send().finish().write(self.path)
        os.truncate(self.path, os.path.getsize(self.path) - 5)
        self.refuses("tshark could not read")

    def test_says_that_tshark_is_missing(self):
        with_one_send().finish().write(self.path)
        with mock.patch.dict(os.environ, {"PATH": "/nowhere"}):
            self.refuses("tshark is not installed.*apt-get install tshark")


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
