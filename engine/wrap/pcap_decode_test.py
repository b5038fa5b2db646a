# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Wireshark decodes what wrap/pcap writes: every byte in a frame, every CRC good, nothing malformed.

    pcap_decode_test.py PCAP_SAMPLE DECODE_DIR
"""

import os
import shutil
import subprocess
import sys
import tempfile

RESPONDER_PORT = 47000
MARKER_SIZE, MARKER_SPACING = 4, 508


def marker_bytes(stream_bytes):
    """Of a direction with `stream_bytes` that are no Marker; one stands before the first (RFC 5044 section 4.3)."""
    return (stream_bytes + MARKER_SPACING - 1) // MARKER_SPACING * MARKER_SIZE


def check(decode, sample, mode, directory):
    path = os.path.join(directory, f"{mode}.pcap")
    subprocess.run([sample, path, mode], check=True)
    found = decode.decode(path, RESPONDER_PORT)
    assert not found.malformed, found.malformed
    assert found.crc_bad == 0 and found.crc_unchecked == 0, found
    assert found.crc_good == found.fpdus > 400, found
    (connection,) = found.connections
    assert connection.is_ddp and connection.terminates == 0, connection
    for direction in (connection.to_server, connection.to_client):
        assert direction.has_start and direction.has_end, connection
        expected = direction.frame_bytes
        if mode == "markers":
            start_up = 24
            expected += marker_bytes(expected - start_up)
        assert direction.stream_bytes == expected, (mode, direction)


def main():
    sample, decode_directory = sys.argv[1:]
    if not shutil.which("tshark"):
        print("skipped: tshark is not installed")
        return 77
    sys.path.insert(0, decode_directory)
    import decode
    with tempfile.TemporaryDirectory() as directory:
        for mode in ("initiator", "responder", "markers"):
            check(decode, sample, mode, directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
