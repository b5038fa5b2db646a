# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""bench/iperf: unmodified iperf3, one stream."""

import json
import tempfile

import machine
import ports
import programs
import ways
from figure import Figure
from recorder import Failed

TITLE = "iperf3"
QUESTION = "How fast is one stream of an unmodified iperf3 (128 KB a write), under cubic and under this machine's default?"
FIGURES = [Figure("rate", "One stream", "bars", note="In brackets Gb/s. CPU time is a megabyte's.")]


def measure(recorder):
    for placement in programs.PLACEMENTS[:1] if recorder.is_quick else programs.PLACEMENTS:
        for cc in machine.congestion_controls():
            label = f"{cc}, {placement.name}"
            if not recorder.wants(label):
                continue
            with tempfile.TemporaryDirectory() as folder, programs.hogs(placement):
                recorder.compare("rate", label, label, "Gb/s", "higher", [ways.PLAIN, *ways.engines()],
                                 lambda way: sample(way, placement, cc, folder), "gbit_s", per="MB")
                if placement == programs.PLACEMENTS[0] and not recorder.is_quick:
                    for way in [ways.PLAIN, *ways.engines()]:
                        recorder.cases[-1].calls[way.name] = count_calls(way, placement, cc, folder)


def serve(way, placement, folder):
    port = ports.free_port()
    return programs.Server(way, placement, ["iperf3", "-s", "-p", str(port)], port, folder=folder)


def ask(way, placement, cc, server, tracer=()):
    command = ["iperf3", "-c", "127.0.0.1", "-p", str(server.port), "-t", "1", "-C", cc, "-J"]
    return programs.run_client(way, placement, command, tracer=tracer)


def count_calls(way, placement, cc, folder):
    """System calls of both sides a megabyte."""
    with serve(way, placement, folder) as server:
        outputs = []
        total = programs.count_system_calls(server, folder, lambda tracer: outputs.append(ask(way, placement, cc, server, tracer)))
    return round(total / (read(outputs[0][0])[1] / 1e6), 3)


def sample(way, placement, cc, folder):
    with serve(way, placement, folder) as server:
        output, cpu = ask(way, placement, cc, server)
        server_cpu = server.cpu_seconds()
    rate, size = read(output)
    return {"gbit_s": rate, "cpu_us": (cpu + server_cpu) / (size / 1e6) * 1e6}


def read(output):
    """Gb/s and bytes, as the receiver counted them."""
    try:
        received = json.loads(output)["end"]["sum_received"]
        return received["bits_per_second"] / 1e9, received["bytes"]
    except (ValueError, KeyError) as error:
        raise Failed(f"iperf3 printed no result ({error!r}): {output[-500:]}") from None
