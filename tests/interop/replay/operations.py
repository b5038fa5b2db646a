#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Prints the operations of a capture as Wireshark reads them, a line each, the client's first.

operations.py CAPTURE SERVER_PORT > EXPECTED
"""

import subprocess
import sys
import xml.etree.ElementTree

OPERATIONS = {0: "write", 1: "read-request", 2: "read-response", 3: "send"}
HEADER_BYTES = {"0": 18, "1": 14}  # by the tagged flag


def shown(element, name):
    found = element.find(f".//field[@name='{name}']")
    return None if found is None else found.get("show")


def startup_line(mpa):
    kind = "request" if shown(mpa, "iwarp_mpa.req") is not None else "reply"
    flags = [int(shown(mpa, f"iwarp_mpa.{name}_flag")) for name in ("marker", "crc", "rej")]
    line = f"{kind} revision={shown(mpa, 'iwarp_mpa.rev')} markers={flags[0]} crc={flags[1]} rejected={flags[2]}"
    data = bytes.fromhex((shown(mpa, "iwarp_mpa.privatedata") or "").replace(":", ""))
    if int(shown(mpa, "iwarp_mpa.res"), 0) & 0x10:  # S of RFC 6581, which Wireshark 4.0 calls reserved
        ird, ord_ = int.from_bytes(data[:2]), int.from_bytes(data[2:4])
        line += f" a={ird >> 15} b={ird >> 14 & 1} c={ord_ >> 15} d={ord_ >> 14 & 1} ird={ird & 0x3fff} ord={ord_ & 0x3fff}"
        data = data[4:]
    return f"{line} private={len(data)}"


def fpdu_line(mpa, ddp):
    opcode = int(shown(ddp, "iwarp_rdma.opcode"), 0)
    tagged = shown(ddp, "iwarp_ddp.tagged_flag")
    line = f"{OPERATIONS.get(opcode, 'other')} last={shown(ddp, 'iwarp_ddp.last_flag')}"
    if tagged == "1":
        line += f" stag={shown(ddp, 'iwarp_ddp.stag')} to={shown(ddp, 'iwarp_ddp.tagged_offset')}"
    else:
        line += "".join(f" {name}={shown(ddp, f'iwarp_ddp.{name}')}" for name in ("qn", "msn", "mo"))
    line += f" length={int(shown(mpa, 'iwarp_mpa.ulpdulength')) - HEADER_BYTES[tagged]}"
    if opcode == 1:
        for word, field in (("sink-stag", "sinkstag"), ("sink-to", "sinkto"), ("size", "rdmardsz"),
                            ("source-stag", "srcstag"), ("source-to", "srcto")):
            line += f" {word}={shown(ddp, f'iwarp_rdma.{field}')}"
    return line


def operations(path, server_port):
    run = subprocess.run(["tshark", "-n", "-r", path, "-o", "tcp.reassemble_out_of_order:TRUE", "-Y", "iwarp_mpa",
                          "-T", "pdml"], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    lines = {"client": [], "server": []}
    for packet in xml.etree.ElementTree.fromstring(run.stdout).iter("packet"):
        side = "client" if shown(packet, "tcp.dstport") == str(server_port) else "server"
        mpa = None
        for proto in packet.iter("proto"):
            if proto.get("name") == "iwarp_mpa":
                mpa = proto
                if shown(mpa, "iwarp_mpa.ulpdulength") is None:
                    lines[side].append(f"{side} {startup_line(mpa)}")
            elif proto.get("name") == "iwarp_ddp_rdmap":
                lines[side].append(f"{side} {fpdu_line(mpa, proto)}")
    return lines["client"] + lines["server"]


if __name__ == "__main__":
    print("\n".join(operations(sys.argv[1], int(sys.argv[2]))))
