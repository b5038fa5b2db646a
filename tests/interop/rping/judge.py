# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What is wrong with what the guest brought back: programs' output and captures against cases.py and failures.py."""

import re

import cases
import decode
import failures

TERM = -15
DISCONNECTED = {"client DISCONNECT EVENT..."}
MAX_NUDGES = 3
FIRST_LETTER, LETTERS = ord("A"), 58
# RFC 5041 section 4: a tagged segment without payload, and the ULPDUs of a Send of 16 octets and of a Read Request.
TAGGED_BYTES, SEND_BYTES, READ_REQUEST_BYTES = 14, 34, 46


def ping_text(size, number):
    """As rping makes it: a head, letters that start one further each time, a NUL at the end."""
    head = f"rdma-ping-{number}: "
    letters = (chr(FIRST_LETTER + (number + i) % LETTERS) for i in range(size - len(head)))
    return (head + "".join(letters))[:size - 1]


def programs(case, played):
    """Complaints about what the programs of a case said and how they ended."""
    for who, ended in played.items():
        if ended["status"] != 0:
            yield f"{who} ended with {ended['status']} after {ended['seconds']} s: {ended['stderr']}"
        prefix = "ping data" if who == "rping" or case.is_ours_client else "server ping data"
        if ended["stdout"] != [f"{prefix}: {ping_text(case.size, n)}" for n in range(case.count)]:
            yield f"{who} printed other data: {len(ended['stdout'])} lines, {[line[:60] for line in ended['stdout'][:3]]}"
    said = "\n".join(played["ours"]["stderr"])
    wanted = f"MPA revision {case.revision}, CRC {'on' if case.has_crc else 'off'}, IRD 1, ORD 1"
    if f"{wanted}{', peer to peer' if case.rtr else ''}\n" not in said:
        yield f"ours did not say '{wanted}': {said}"
    if "rping" in played and set(played["rping"]["stderr"]) - DISCONNECTED:
        yield f"rping complained: {played['rping']['stderr']}"


def max_ulpdu(case, group, is_ours):
    """What fits in a segment with timestamps: our MULPDU is RFC 5044 section 5's, siw rounds segments down to 8 bytes."""
    emss = group.mtu - (60 if case.is_ipv6 else 40) - 12
    return emss - (6 + emss % 4) if is_ours else emss - emss % 8 - 6


def connection(case, group, seen):
    """Complaints about the connection of a case, as Wireshark saw it."""
    crcs = (seen.fpdus, 0, 0) if case.has_crc else (0, 0, seen.fpdus)
    if (seen.crc_good, seen.crc_bad, seen.crc_unchecked) != crcs:
        yield f"of {seen.fpdus} CRCs {seen.crc_good} good, {seen.crc_bad} bad, {seen.crc_unchecked} not used"
    to_server = {"Send": 2 * case.count, "Read Response": case.count}
    to_client = {"Send": 2 * case.count, "Write": case.count, "Read Request": case.count}
    # The RTR message, and the Response to one that is a Read.
    if case.rtr == "Write":
        to_server["Write"] = 1
    elif case.rtr == "Read":
        to_server["Read Request"] = 1
        to_client["Read Response"] = 1
    # Writes of no octets to a siw that is slow, or has overlooked the first FPDU: doc/decisions/0005-nudge.md.
    nudges = seen.to_server.messages["Write"] - (case.rtr == "Write")
    if case.is_ours_client and 0 < nudges <= MAX_NUDGES and seen.to_server.bytes_of["Write"] == 0:
        to_server["Write"] = to_server.get("Write", 0) + nudges
    if (dict(seen.to_server.messages), dict(seen.to_client.messages)) != (to_server, to_client):
        yield f"messages {seen.to_server.messages} and {seen.to_client.messages}"
    moved = seen.to_server.bytes_of["Read Response"], seen.to_client.bytes_of["Write"]
    if moved != (case.size * case.count,) * 2:
        yield f"{moved} bytes read and written, expected {case.size * case.count}"
    if seen.to_client.revision != case.revision:
        yield f"the Reply has revision {seen.to_client.revision}"
    for who, direction, floor, is_ours in (("client", seen.to_server, SEND_BYTES, case.is_ours_client),
                                           ("server", seen.to_client, READ_REQUEST_BYTES, not case.is_ours_client)):
        wanted = max(floor, min(max_ulpdu(case, group, is_ours), case.size + TAGGED_BYTES))
        if direction.largest_ulpdu != wanted:
            yield f"the {who}'s largest ULPDU has {direction.largest_ulpdu} bytes, expected {wanted}"
        # RNICs want FPDUs at the start of segments. A full window cuts one now and then.
        if is_ours and not group.netem and direction.unaligned * 8 > direction.fpdus:
            yield f"{direction.unaligned} segments of the {who} do not begin with an FPDU, of {direction.fpdus}"


def group(one, result, capture):
    """Case name -> complaints, for all of a group."""
    results = {f"{one.name}: {case.name}": list(programs(case, played))
               for case, played in zip(one.cases, result["cases"], strict=True)}
    whole = [f"rping's server ended with {s['status']}: {s['stderr'][-3:]}" for s in result["servers"] if s["status"] != TERM]
    results[f"{one.name}: capture"] = whole
    if len(results) != len(one.cases) + 1:
        whole.append("two cases have one name")
    ports = {one.port(case) for case in one.cases}
    try:
        seen = decode.decode(capture, ports)
    except decode.DecodeError as error:
        whole.append(str(error))
        return results
    whole += decode.complaints(seen, crc=None, connections=len(one.cases))
    for port in ports:
        # One case after the other, so they are in this order on the wire.
        served = [case for case in one.cases if one.port(case) == port]
        for case, one_seen in zip(served, seen.of_port(port).connections):
            results[f"{one.name}: {case.name}"] += connection(case, one, one_seen)
    return results


def failure(scenario, ended):
    """Complaints about one of failures.py."""
    ours, rping = ended["ours"], ended["rping"]
    said = "\n".join(ours["stderr"])
    if ours["status"] != scenario.status or not re.search(scenario.says, said):
        yield f"ours ended with {ours['status']} and said: {said}"
    if ours["seconds"] > failures.LIMIT:
        yield f"ours took {ours['seconds']} s"
    is_told = rping and any("DISCONNECT EVENT" in line for line in rping["stderr"])
    if rping and scenario.does_rping_notice and rping["status"] != failures.KILLED and not is_told:
        yield f"rping did not notice the end: {rping}"


def all_failures(result, capture):
    results = {f"failures: {s.name}": list(failure(s, result[s.name])) for s in failures.EVERY}
    try:
        seen = decode.decode(capture, failures.PORTS)
        # The scenario itself says which side has to end it, and how.
        results["failures: capture"] = list(decode.complaints(seen, terminates=None, is_cut=True))
    except decode.DecodeError as error:
        results["failures: capture"] = [str(error)]
    return results
