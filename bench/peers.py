# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""bench/peers: other ways between two processes of one host: UCX and libfabric, by their own measuring programs."""

import contextlib
import pathlib
import re
import resource
import subprocess
import tempfile

import pair
import ports
import ways
from figure import Figure, size_name
from recorder import Failed

TITLE = "Beside UCX and libfabric"
QUESTION = ("How do sockets over each engine stand beside communication libraries that programs have to be written for? All ends spin, on two "
            "CPUs; whatever goes over TCP does so under the system's congestion control.")
LATENCY_SIZES = [8, 64, 1024, 8192, 65536, 1 << 20]
BANDWIDTH_SIZES = [1024, 8192, 65536, 1 << 20, 4 << 20]
PROBE, PROBE_BYTES = 200, 64 << 20  # messages to learn how many fill a sample; fewer if they are long
RUN_SECONDS = 60

UCX = {ways.Way("UCX posix+cma", env=(("UCX_TLS", "posix,cma,self"),)), ways.Way("UCX tcp", env=(("UCX_TLS", "tcp,self"), ("UCX_NET_DEVICES", "lo")))}
FABRIC = {ways.Way("libfabric shm", options=("-p", "shm", "-e", "rdm")), ways.Way("libfabric tcp", options=("-p", "tcp", "-e", "msg"))}
OTHERS = sorted(UCX | FABRIC, key=lambda way: way.name)

FIGURES = [
    Figure("latency", "Latency, both ends spinning", "lines", "bytes a message", is_x_bytes=True,
           note="Half the round trip. Medians by stream_peer and ucx_perftest (tag_lat), an average by fi_pingpong, which has nothing else."),
    Figure("bandwidth", "Bandwidth, both ends spinning", "lines", "bytes a message", is_x_bytes=True,
           note="One direction, by stream_peer and ucx_perftest (tag_bw); fi_pingpong does not stream."),
]


def measure(recorder):
    place = pair.TWO_CPUS if recorder.is_pinned else pair.ANYWHERE
    sockets = [ways.PLAIN, *ways.engines()]
    for what, sizes, others in (("latency", LATENCY_SIZES, OTHERS), ("bandwidth", BANDWIDTH_SIZES, [w for w in OTHERS if w in UCX])):
        unit, key, better = ("us one way", "p50_us", "lower") if what == "latency" else ("Gb/s", "gbit_s", "higher")
        for size in recorder.thin(sizes):
            name = f"{what} {size_name(size)}"
            if recorder.wants(name):
                counts = {}
                recorder.compare(what, name, size, unit, better, sockets + others,
                                 lambda way: sample(way, what, size, recorder.seconds, place, counts), key)


def sample(way, what, size, seconds, place, counts):
    if way not in OTHERS:
        return pair.run("stream_peer", way, what, [f"--size={size}", "--wait=spin", f"--seconds={seconds}"], place)
    if way in UCX:
        return sample_ucx(way, "tag_lat" if what == "latency" else "tag_bw", size, seconds, place, counts)
    if way not in counts:
        first = ask_fabric(way, size, probe(size), place)
        counts[way] = max(probe(size), int(seconds * 1e6 / first["p50_us"] / 2))
    return ask_fabric(way, size, counts[way], place)


def sample_ucx(way, test, size, seconds, place, counts):
    """One of ucx_perftest's tests for so long; `counts` keeps how many messages that takes from sample to sample."""
    if way not in counts:
        first = ask_ucx(way, test, size, probe(size), place)
        # Its rate is printed with two digits behind the point: few small messages have none.
        took = size * 8 / first["gbit_s"] / 1e3 if first["gbit_s"] else first["p50_us"]
        counts[way] = max(probe(size), int(seconds * 1e6 / took))
    return ask_ucx(way, test, size, counts[way], place)


def probe(size):
    return min(PROBE, PROBE_BYTES // size)


def ask_ucx(way, test, size, count, place):
    port = ports.free_port()
    command = ["ucx_perftest", "-p", str(port)]
    options = ["127.0.0.1", "-t", test, "-s", str(size), "-n", str(count), "-w", str(probe(size)), "-f", "-v"]
    return read_ucx(*run_both(way, command, options, port, place))


def ask_fabric(way, size, count, place):
    port = ports.free_port()
    command = ["fi_pingpong", *way.options, "-I", str(count), "-S", str(size)]
    output, cpu_seconds = run_both(way, [*command, "-B", str(port)], ["-P", str(port), "127.0.0.1"], port, place, command)
    return {**read_fabric(output), "cpu_us": cpu_seconds * 1e6 / count}


def run_both(way, serve, connect, port, place, client=None):
    """The client's output and the CPU seconds of both. The server ends with its first client."""
    pins = [[] if cpu is None else ["taskset", "-c", str(cpu)] for cpu in place.cpus]
    before = _children_seconds()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        log = stack.enter_context((pathlib.Path(folder) / "log").open("w+", encoding="utf-8"))
        server = subprocess.Popen([*pins[0], *serve], env=way.environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            ports.wait_until_listening(port, server, RUN_SECONDS)
            done = subprocess.run([*pins[1], *(client or serve), *connect], env=way.environment(), stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=RUN_SECONDS)
            server.wait(RUN_SECONDS)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            raise Failed(f"{error}") from None
        finally:
            if server.poll() is None:
                server.kill()
                server.wait()
    if done.returncode != 0:
        raise Failed(f"{done.args}: {done.stdout[-500:]} {done.stderr[-500:]}")
    return done.stdout, _children_seconds() - before


def _children_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def read_ucx(output, cpu_seconds):
    rows = [line.strip().split(",") for line in output.splitlines() if re.match(r"iterations,|\s*\d+,", line)]
    try:
        row = dict(zip(rows[0], map(float, rows[-1])))
        # Its megabytes are binary.
        return {"p50_us": row["50.0_percentile_lat"], "gbit_s": row["overall_bw"] * 2 ** 20 * 8 / 1e9, "cpu_us": cpu_seconds * 1e6 / row["iterations"]}
    except (IndexError, KeyError, ValueError) as error:
        raise Failed(f"ucx_perftest printed no result ({error!r}): {output[-500:]}") from None


def read_fabric(output):
    lines = [line.split() for line in output.splitlines()]
    try:
        row = dict(zip(lines[0], lines[1]))
        return {"p50_us": float(row["usec/xfer"])}
    except (IndexError, KeyError, ValueError) as error:
        raise Failed(f"fi_pingpong printed no result ({error!r}): {output[-500:]}") from None
