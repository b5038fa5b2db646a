#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The demo's verdict rests on decode.py: these captures are broken on purpose, and each must be noticed."""

import pathlib
import sys
import tempfile
import unittest

import decode
from sample_capture import CLIENT, REPLY, REQUEST, SERVER, Connection, mpa_start, send_fpdu


class DecodeTest(unittest.TestCase):
    def decoded(self, connection):
        with tempfile.TemporaryDirectory() as folder:
            path = str(pathlib.Path(folder) / "sample.pcap")
            connection.write(path)
            return decode.decode(path, SERVER[1])

    def started(self, request=REQUEST, reply=REPLY):
        connection = Connection()
        connection.say(CLIENT, request)
        connection.say(SERVER, reply)
        return connection

    def test_accounts_for_every_byte_of_a_good_connection(self):
        connection = self.started()
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

    def test_notices_a_bad_crc(self):
        connection = self.started()
        connection.say(CLIENT, send_fpdu(b"x" * 64, 1, good_crc=False))
        result = self.decoded(connection.finish())
        self.assertEqual((result.crc_good, result.crc_bad), (0, 1))

    def test_notices_that_crc_is_off(self):
        off = {key: mpa_start(key, flags=0x10) for key in (b"MPA ID Req Frame", b"MPA ID Rep Frame")}
        connection = self.started(*off.values())
        connection.say(CLIENT, send_fpdu(b"x" * 64, 1))
        result = self.decoded(connection.finish())
        self.assertEqual((result.crc_good, result.crc_unchecked), (0, 1))

    def test_notices_a_segment_missing_from_the_capture(self):
        connection = self.started()
        connection.say(CLIENT, send_fpdu(b"x" * 64, 1))
        connection.say(CLIENT, send_fpdu(b"y" * 64, 2), lose=True)
        connection.say(CLIENT, send_fpdu(b"z" * 64, 3))
        [seen] = self.decoded(connection.finish()).connections
        self.assertFalse(seen.is_accounted)

    def test_notices_a_capture_that_ends_early(self):
        connection = self.started()
        connection.say(CLIENT, send_fpdu(b"x" * 64, 1))
        [seen] = self.decoded(connection).connections
        self.assertFalse(seen.is_accounted)

    def test_notices_plain_tcp(self):
        connection = Connection()
        connection.say(CLIENT, b"GET / HTTP/1.0\r\n\r\n")
        [seen] = self.decoded(connection.finish()).connections
        self.assertFalse(seen.is_ddp)

    def test_notices_bytes_between_frames(self):
        connection = self.started()
        connection.say(CLIENT, send_fpdu(b"x" * 64, 1))
        connection.say(CLIENT, b"plain text that is no FPDU at all")
        result = self.decoded(connection.finish())
        self.assertFalse(result.connections[0].is_accounted)

    def test_notices_a_rejecting_reply(self):
        result = self.decoded(self.started(reply=mpa_start(b"MPA ID Rep Frame", flags=0x70)).finish())
        self.assertFalse(result.connections[0].is_ddp)
        self.assertTrue(result.malformed)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
