# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""bench/nginx: an unmodified nginx, one worker, asked by an unmodified wrk."""

import contextlib
import os
import pathlib
import re
import tempfile

import ports
import programs
import ways
from figure import Figure
from recorder import Failed

TITLE = "nginx and wrk"
QUESTION = "How many requests does an unmodified nginx (one worker, sendfile on, keep-alive) answer to an unmodified wrk (one thread)?"
CONNECTIONS = (1, 50)
SIZES = ((612, "612 B"), (65536, "64 KB"))
FIGURES = [Figure(p.name.replace(" ", "-"), f"Requests, {p.name}", "bars", note="In brackets requests a second.") for p in programs.PLACEMENTS]

CONFIGURATION = """daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log; {user}
events {{ worker_connections 512; }}
http {{
  access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000000;
  client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3; uwsgi_temp_path {folder}/t4;
  scgi_temp_path {folder}/t5;
  server {{ listen 127.0.0.1:{port}; root {files}; }}
}}
"""


def measure(recorder):
    for placement in programs.PLACEMENTS[:1] if recorder.is_quick else programs.PLACEMENTS:
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            for size, name in SIZES:
                (pathlib.Path(folder) / name.replace(" ", "")).write_bytes(b"x" * size)
            servers = {}
            for way in [ways.PLAIN, *ways.engines()]:
                try:
                    servers[way] = stack.enter_context(start(way, placement, folder))
                except Failed as failed:
                    recorder.problem(f"nginx, {placement.name}: {way.name}: {failed}")
            stack.enter_context(programs.hogs(placement))
            for size, name in SIZES:
                for connections in CONNECTIONS:
                    label = f"{name}, {connections} connection{'s' if connections > 1 else ''}"
                    if recorder.wants(label):
                        compare(recorder, placement, servers, folder, name.replace(" ", ""), connections, label)


def start(way, placement, files):
    port = ports.free_port()
    folder = pathlib.Path(files) / f"{port}"
    folder.mkdir()
    # The workers stay the user who runs the benchmark, as wrk is.
    configuration = CONFIGURATION.format(folder=folder, files=files, port=port, user="user root;" if os.geteuid() == 0 else "")
    (folder / "nginx.conf").write_text(configuration)
    return programs.Server(way, placement, ["nginx", "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(folder / "nginx.conf")],
                           port, folder=folder)


def compare(recorder, placement, servers, folder, path, connections, label):
    def ask(way, tracer=()):
        command = ["wrk", "-t", "1", "-c", str(connections), "-d", "1", f"http://127.0.0.1:{servers[way].port}/{path}"]
        output, cpu = programs.run_client(way, placement, command, tracer=tracer)
        return *read(output), cpu

    def sample(way):
        before = servers[way].cpu_seconds()
        rate, requests, cpu = ask(way)
        return {"rate": rate, "cpu_us": (cpu + servers[way].cpu_seconds() - before) / requests * 1e6}

    recorder.compare(placement.name.replace(" ", "-"), f"{label}, {placement.name}", label, "requests/s", "higher", list(servers), sample,
                     "rate", per="request")
    if placement == programs.PLACEMENTS[0] and not recorder.is_quick:
        for way in servers:
            seen = []
            total = programs.count_system_calls(servers[way], folder, lambda tracer: seen.append(ask(way, tracer)))
            recorder.cases[-1].calls[way.name] = round(total / seen[0][1], 3)


def read(output):
    """Requests a second, and how many there were."""
    rate, requests = re.search(r"^Requests/sec:\s*([\d.]+)", output, re.M), re.search(r"^\s*(\d+) requests in", output, re.M)
    if not rate or not requests or "Socket errors" in output or "Non-2xx" in output:
        raise Failed(f"wrk: {output[-800:]}")
    return float(rate[1]), int(requests[1])
