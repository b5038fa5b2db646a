# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""bench/hosts: two hosts, as network namespaces with an Ethernet pair between them."""

import contextlib
import os
import pathlib
import subprocess
import tempfile

import pair
import ways
from figure import Figure, size_name
from recorder import Failed

TITLE = "Two hosts"
QUESTION = ("What does the user engine cost between two hosts? They are network namespaces of this machine joined by veth, so the wire is free "
            "and the CPUs pay for everything; shared memory does not reach across.")
MTUS = (1500, 9000)
LATENCY_SIZES = [1, 64, 1024, 4096, 16384]
BANDWIDTH_SIZES = [64, 1024, 4096, 65536, 1 << 20]
COUNTED = {("latency", 64), ("bandwidth", 64), ("bandwidth", 65536)}
ADDRESSES = ("10.213.77.1", "10.213.77.2")
FIGURES = [Figure(f"{what}-{mtu}", f"{title}, MTU {mtu}", "lines", label, is_x_bytes=True, note="Both ends blocking, on two CPUs, cubic.")
           for mtu in MTUS for what, title, label in (("latency", "Latency", "bytes a message"), ("bandwidth", "Bandwidth", "bytes a send"))]


def measure(recorder):
    if os.geteuid() != 0:
        recorder.problem("hosts: making network namespaces needs root")
        return
    engines = [way for way in ways.engines() if way == ways.USER]
    for mtu in MTUS:
        with two_hosts(mtu) as place:
            for what, sizes in (("latency", LATENCY_SIZES), ("bandwidth", BANDWIDTH_SIZES)):
                unit, key, better = ("us one way", "p50_us", "lower") if what == "latency" else ("Gb/s", "gbit_s", "higher")
                for size in recorder.thin(sizes):
                    name = f"{what} {size_name(size)}, MTU {mtu}"
                    options = [f"--size={size}", "--cc=cubic", f"--address={ADDRESSES[0]}", f"--seconds={recorder.seconds}"]
                    if recorder.wants(name):
                        recorder.compare(f"{what}-{mtu}", name, size, unit, better, [ways.PLAIN, *engines],
                                         lambda way: pair.run("stream_peer", way, what, options, place), key)
                    if recorder.wants(name) and (what, size) in COUNTED and not recorder.is_quick:
                        pair.count_into(recorder.cases[-1], [ways.PLAIN, *engines], what, options[:-1], place, size)


@contextlib.contextmanager
def two_hosts(mtu):
    """The place of a server on the first and a client on the second; each has a registry of its own, as hosts do."""
    names = [f"ddpb-{os.getpid()}-{side}" for side in "ab"]
    with contextlib.ExitStack() as stack:
        registries = [stack.enter_context(tempfile.TemporaryDirectory()) for _ in names]
        for name, registry in zip(names, registries):
            pathlib.Path(registry).chmod(0o1777)
            ip("netns", "add", name)
            stack.callback(ip, "netns", "delete", name)
        ip("-n", names[0], "link", "add", "eth0", "mtu", str(mtu), "type", "veth", "peer", "name", "eth0", "mtu", str(mtu), "netns", names[1])
        for name, address in zip(names, ADDRESSES):
            ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", "eth0", "up")
        yield pair.Place(tuple(("ip", "netns", "exec", name) for name in names),
                         tuple({"DDPSOCK_REGISTRY_DIR": registry} for registry in registries))


def ip(*words):
    done = subprocess.run(["ip", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"ip {' '.join(words)}: {done.stderr}")
