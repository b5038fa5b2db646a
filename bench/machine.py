# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Where things are, and the facts about this machine that a figure means nothing without."""

import os
import pathlib
import platform
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Where the product and the programs of bench/ are; tests of another build folder say so.
BUILD = pathlib.Path(os.environ.get("DDPSOCK_BENCH_BUILD") or ROOT / "build")
LIBRARY = BUILD / "shim" / "libddpsock.so"
DDPRUN = BUILD / "shim" / "ddprun"
# Packages whose version a figure depends on.
MEASURED_PACKAGES = ("redis-server", "iperf3", "nginx-common", "wrk", "postgresql-15", "ucx-utils", "libfabric-bin",
                     "libisal2", "libc6")


def program(name):
    """One that bench/ builds."""
    return str(BUILD / "bench" / name)


def line_ns():
    """A cache line's way to the other of the first two CPUs and back, in ns; None where that cannot be measured."""
    try:
        return float(_output(program("line_probe"), "0", "1"))
    except ValueError:
        return None


def has_product():
    return LIBRARY.exists() and DDPRUN.exists()


def relative(path):
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path


def _read(path):
    try:
        with open(path, encoding="ascii") as f:
            return f.read().strip()
    except OSError:
        return None


def default_congestion_control():
    return _read("/proc/sys/net/ipv4/tcp_congestion_control")


def congestion_controls():
    """cubic, which everybody has and knows, and this machine's default where that is another one."""
    available = _read("/proc/sys/net/ipv4/tcp_available_congestion_control").split()
    wanted = dict.fromkeys(["cubic", default_congestion_control()])
    return [name for name in wanted if name in available]


def _output(*command):
    try:
        return subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=False).stdout.strip()
    except OSError:
        return ""


def versions():
    lines = _output("dpkg-query", "-W", "-f=${db:Status-Status} ${Package} ${Version}\n", *MEASURED_PACKAGES).splitlines()
    return ", ".join(line.removeprefix("installed ") for line in lines if line.startswith("installed "))


def facts(is_pinned):
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as f:
        models = {line.partition(":")[2].strip() for line in f if line.startswith("model name")}
    return {
        "cpu": ", ".join(sorted(models)),
        "cpus": os.cpu_count(),
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or "none visible",
        "kernel": platform.release(),
        "default congestion control": default_congestion_control(),
        "tcp_rmem": _read("/proc/sys/net/ipv4/tcp_rmem"),
        "tcp_wmem": _read("/proc/sys/net/ipv4/tcp_wmem"),
        "load average at start": f"{os.getloadavg()[0]:.2f}",
        "processes pinned": is_pinned,
        "ddpsock": _output("git", "-c", "safe.directory=*", "describe", "--always", "--dirty") or "no git checkout",
        "versions": versions(),
    }
