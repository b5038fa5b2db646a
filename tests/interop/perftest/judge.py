# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What is wrong with what the guest brought back: programs' output and captures against cases.py."""

import json
import re

import cases
import decode

MOST_NUDGES = 3
# perftest prints a table; these are bytes and iterations of a row.
ROW = re.compile(r"^\s*(\d+)\s+(\d+)\s+[\d.]+\s+[\d.]+", re.MULTILINE)


def is_printing(case, is_server):
    """Whether that end prints results."""
    return not is_server or case.test != "read-lat"


def rows_of(case, ended, is_ours):
    if is_ours:
        found = [json.loads(line) for line in ended["stdout"].splitlines()]
        return [(f["bytes"], f["iterations"]) for f in found]
    return [(int(size), int(count)) for size, count in ROW.findall(ended["stdout"])]


def ends(case, result):
    """Complaints about both programs."""
    wanted_sizes = [1 << n for n in range(1, 24)] if case.is_sweep else [case.bytes]
    for who, ended in result.items():
        is_ours = case.is_ours_client == (who == "client")
        name = f"{'ddp-perf' if is_ours else 'perftest'}, the {who},"
        if ended["status"] != 0:
            yield f"{name} ended with {ended['status']}: {ended['stdout'][-300:]}{ended['stderr'][-600:]}"
        elif is_printing(case, who == "server"):
            rows = rows_of(case, ended, is_ours)
            if rows != [(size, case.count) for size in wanted_sizes]:
                yield f"{name} found {rows}"


def refusal(case, result):
    """ddp-perf says why, at once, and perftest notices the end."""
    said = result["server"]["stderr"]
    if result["server"]["status"] != 1 or "RFC 5044 section 7.1.2" not in said:
        yield f"ddp-perf ended with {result['server']['status']}: {said}"
    if result["client"]["status"] in (0, None):
        yield f"perftest ended with {result['client']['status']}"


def expected_data(case):
    """Messages and bytes each way on the data connection: (to the server, to the client)."""
    verb, metric = case.test.split("-")
    to_server, to_client = {}, {}
    forth, back = (to_server, to_client)
    if verb == "read":
        forth["Read Request"] = back["Read Response"] = case.count
        if case.is_bidirectional:
            back["Read Request"] = forth["Read Response"] = case.count
    else:
        forth[{"send": "Send", "write": "Write"}[verb]] = case.count
        if metric == "lat" or case.is_bidirectional:
            back.update(forth)
    return to_server, to_client


def told(case, name, seen, wanted):
    """Complaints about the messages of a connection: (to the server, to the client) each."""
    to_server, to_client = (dict(m) for m in seen)
    if case.has_ready_message:
        wanted[0]["Write"] = wanted[0].get("Write", 0) + 1
    # Up to three more empty Writes if nothing has come for a while (doc/decisions/0005-nudge.md).
    if case.is_ours_client and 0 < to_server.get("Write", 0) - wanted[0]["Write"] <= MOST_NUDGES:
        to_server["Write"] = wanted[0]["Write"]
    if (to_server, to_client) != wanted:
        yield f"{name}: {to_server} to the server, {to_client} to the client, expected {wanted}"


def messages(case, control, data):
    """Complaints about what was said on the two connections of a case."""
    exchanges = {"Send": case.control_messages}
    yield from told(case, "control", (control.to_server.messages, control.to_client.messages),
                    ({**exchanges}, {**exchanges}))
    to_client = data.to_client.messages.copy()
    credit_bytes = 0
    if case.test == "send-bw":
        credits = to_client.pop("Write", 0)
        credit_bytes = 4 * credits
        if not 1 <= credits <= case.most_credits or (case.is_ours_client and credits != case.most_credits):
            yield f"{credits} times credit, expected {case.most_credits}"
    yield from told(case, "data", (data.to_server.messages, to_client), expected_data(case))
    moved = sum(d.bytes_of[o] for d in (data.to_server, data.to_client) for o in ("Send", "Write", "Read Response"))
    ways = 2 if case.is_bidirectional or case.test in ("send-lat", "write-lat") else 1
    if moved - credit_bytes != ways * case.count * case.bytes:
        yield f"{moved - credit_bytes} bytes were moved, expected {ways * case.count * case.bytes}"


def digests(case, connection):
    good, unused = (connection.fpdus, 0) if case.has_crc else (0, connection.fpdus)
    if (connection.crc_good, connection.crc_bad, connection.crc_unchecked) != (good, 0, unused):
        yield (f"of {connection.fpdus} CRCs {connection.crc_good} good, {connection.crc_bad} bad, "
               f"{connection.crc_unchecked} not used")


def captures(out):
    """Case name -> complaints, and what is wrong with a capture as a whole."""
    results, whole = {}, []
    try:
        seen = decode.decode(str(out / "perftest.pcap"), {cases.PORT_OF[c] for c in cases.CAPTURED})
        # perftest's server does not listen for a moment between the two; ddp-perf tries again.
        seen.connections = [c for c in seen.connections if c.is_ddp or not c.is_reset]
        whole += decode.complaints(seen, crc=None, connections=2 * len(cases.CAPTURED))
        # One case after the other, each with its control connection first.
        pairs = list(zip(seen.connections[::2], seen.connections[1::2]))
        for case, (control, data) in zip(cases.CAPTURED, pairs):
            results[case.name] = [*digests(case, control), *digests(case, data), *messages(case, control, data)]
        refused = {cases.PORT_OF[c] for c in cases.EVERY if c.is_refused}
        # An FPDU that was never sent would be missing; one that was must be right.
        cut = decode.decode(str(out / "refused.pcap"), refused)
        whole += decode.complaints(cut, crc=True, connections=2, is_cut=True)
    except decode.DecodeError as error:
        whole.append(str(error))
    return {**results, "captures": whole}


def everything(brought, out):
    results = {}
    for case in cases.EVERY:
        judged = refusal if case.is_refused else ends
        results[case.name] = list(judged(case, brought[case.name]))
    for name, complaints in captures(out).items():
        results.setdefault(name, []).extend(complaints)
    return results
