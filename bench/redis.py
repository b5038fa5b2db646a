# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""bench/redis: unmodified redis-server and redis-benchmark."""

import contextlib
import itertools
import re
import tempfile

import ports
import programs
import ways
from figure import Figure, size_name
from recorder import Failed

TITLE = "redis"
QUESTION = ("How many requests does an unmodified redis-server answer to an unmodified redis-benchmark? Cores otherwise idle, both "
            "on one core, and beside one busy process a core; the congestion control is the system's default for all.")
CLIENTS, PIPELINES, SIZES = (1, 50), (1, 16), (3, 65536)
TRACED_REQUESTS = 3000
LEAST_REQUESTS = 16 * 50  # a pipeline for every client
_KEY = "key:__rand_int__"  # the only key that redis-benchmark uses

FIGURES = [Figure(p.name.replace(" ", "-"), f"GET, {p.name}", "bars", note="In brackets requests a second.") for p in programs.PLACEMENTS]
FIGURES += [Figure("set", "SET, idle cores", "bars", note="In brackets requests a second."),
            Figure("off", "Library loaded, rules off", "bars", note="GET of 3 B by 50 clients, idle cores.")]


def measure(recorder):
    for placement in programs.PLACEMENTS:
        has_off = placement == programs.PLACEMENTS[0] and ways.engines()
        compared = [ways.PLAIN, *ways.engines(), *([ways.PRELOADED] if has_off else [])]
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            servers = {}
            for way in compared:
                try:
                    servers[way] = stack.enter_context(start(way, placement, folder))
                except Failed as failed:
                    recorder.problem(f"redis, {placement.name}: {way.name}: {failed}")
            stack.enter_context(programs.hogs(placement))
            measure_placement(recorder, placement, servers, folder)


def start(way, placement, folder):
    port = ports.free_port()
    return programs.Server(way, placement, ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder],
                           port, folder=folder)


def measure_placement(recorder, placement, servers, folder):
    is_idle = not placement.prefix and not placement.hogs
    combinations = list(itertools.product(SIZES, CLIENTS, PIPELINES))
    for size, clients, pipeline in recorder.thin(combinations, keep=2) if is_idle or not recorder.is_quick else [(3, 1, 1)]:
        label = f"{size_name(size)}, {clients} client{'s' if clients > 1 else ''}, pipeline {pipeline}"
        for verb in ("SET", "GET"):
            name = f"{verb} {label}, {placement.name}"
            # GET asks for what SET left.
            if not recorder.wants(name) or (verb == "SET" and not is_idle):
                for way in servers if verb == "SET" else ():
                    fill(servers[way], way, size)
                continue
            options = ["-t", verb.lower(), "-c", str(clients), "-P", str(pipeline), "-d", str(size)]
            compare(recorder, placement, servers, folder, options, name, f"{verb} {label}")


def fill(server, way, size):
    programs.run_client(way, programs.PLACEMENTS[0],
                        ["redis-benchmark", "-p", str(server.port), "-t", "set", "-n", "1", "-c", "1", "-d", str(size), "--csv"])


def compare(recorder, placement, servers, folder, options, name, label):
    figure = "set" if label.startswith("SET") else placement.name.replace(" ", "-")
    is_idle = figure in ("set", "idle-cores")
    counts = {}

    def sample(way):
        server = servers[way]
        if way not in counts:
            counts[way] = enough_requests(lambda n: ask(server, way, placement, options, n)[0], recorder.seconds * 1.6)
        before = server.cpu_seconds()
        rate, cpu, _ = ask(server, way, placement, options, counts[way])
        return {"rate": rate, "cpu_us": (cpu + server.cpu_seconds() - before) / counts[way] * 1e6}

    compared = [way for way in servers if way != ways.PRELOADED]
    recorder.compare(figure, name, label, "requests/s", "higher", compared, sample, "rate", per="request")
    if name.startswith("GET 3 B, 50 clients, pipeline 1, idle") and ways.PRELOADED in servers:
        recorder.compare("off", f"{name}, rules off", label, "requests/s", "higher", [ways.PLAIN, ways.PRELOADED], sample, "rate",
                         per="request")
    if is_idle and not recorder.is_quick:
        for way in compared:
            total = programs.count_system_calls(servers[way], folder,
                                                lambda tracer: ask(servers[way], way, placement, options, TRACED_REQUESTS, tracer))
            recorder.cases[-1].calls[way.name] = round(total / TRACED_REQUESTS, 3)


def enough_requests(rate_of, seconds):
    """So many that they take about that long. The first try may be over before redis-benchmark's clock has moved."""
    tried = LEAST_REQUESTS
    while (rate := rate_of(tried)) == float("inf"):
        tried *= 10
    return max(LEAST_REQUESTS, int(rate * seconds))


def ask(server, way, placement, options, requests, tracer=()):
    """Requests a second, the client's CPU time, its output."""
    command = ["redis-benchmark", "-p", str(server.port), *options, "-n", str(requests), "--csv"]
    output, cpu = programs.run_client(way, placement, command, tracer=tracer)
    return read_rate(output), cpu, output


def read_rate(output):
    match = re.search(r'^"(?:GET|SET)","([\d.]+|inf)"', output, re.M)
    if not match:
        raise Failed(f"redis-benchmark printed no rate: {output[-500:]}")
    return float(match[1])
