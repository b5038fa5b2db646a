# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What each benchmark needs to have been built and installed, so that `./dev bench NAME` prepares nothing else."""

import dataclasses

PRODUCT = ("shim/libddpsock.so", "shim/ddprun", "bench/line_probe")
COMMON = ("python3", "strace", "util-linux", "iproute2", "procps")
REDIS = ("redis-server", "redis-tools")


@dataclasses.dataclass(frozen=True)
class Needs:
    programs: tuple = ()  # files of the build folder, beside the product
    packages: tuple = ()  # of Debian, beside the common ones
    is_in_lab: bool = False  # the guest's kernel, too


def peers(*names):
    return tuple(f"bench/{name}_peer" for name in names)


OF = {
    "redis": Needs(packages=REDIS),
    "stream": Needs(peers("stream")),
    "message": Needs(peers("stream", "message")),
    "onesided": Needs(peers("stream", "message", "onesided")),
    "steps": Needs(("bench/steps",)),
    "peers": Needs(peers("stream"), ("ucx-utils", "libfabric-bin")),
    "paper": Needs(peers("stream")),
    "ripc": Needs(peers("stream")),
    "iperf": Needs(packages=("iperf3",)),
    "nginx": Needs(packages=("nginx-light", "wrk")),
    "postgres": Needs(packages=("postgresql-15",)),
    "connections": Needs(peers("connections")),
    "short": Needs(peers("short")),
    "hosts": Needs(peers("stream")),
    "guest": Needs(("tools/ddp-perf",), is_in_lab=True),
    "passthrough": Needs(("bench/passthrough_calls", *peers("stream"))),
}


def told(what, names):
    """One line of words for ./dev."""
    chosen = [OF[name] for name in names]
    if what == "lab":
        return "lab" if any(n.is_in_lab for n in chosen) else ""
    always, field = (PRODUCT, "programs") if what == "targets" else (COMMON, "packages")
    return " ".join(dict.fromkeys([*always, *(word for n in chosen for word in getattr(n, field))]))
