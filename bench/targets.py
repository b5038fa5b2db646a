# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the project set out to reach, as ratios of one run."""

import dataclasses
import statistics


@dataclasses.dataclass(frozen=True)
class Target:
    """ours/peer of one case is at most or at least `limit`. `aspect` is samples, cpu_us or calls."""
    text: str
    bench: str
    case: str
    ours: str
    peer: str  # none: the limit is of our value itself
    sense: str  # at most or at least
    limit: float
    aspect: str = "samples"
    cause: str = ""  # where it is missed, as far as is known


SHM, USER, PLAIN, PREFERRED = "shm engine", "user engine", "plain TCP", "as rules have it"
MESSAGES, MESSAGES_SHM, SIW = "user engine, message mode", "shm engine, message mode", "siw"
MESSAGES_MAPPED = "shm engine, memory from ddp_alloc"

SHM_TARGETS = [
    Target("8 B one way, both spinning, against UCX", "peers", "latency 8 B", SHM, "UCX posix+cma", "at most", 0.7),
    Target("8 B one way, both spinning, against spinning TCP", "stream", "latency 8 B spinning cubic", SHM, PLAIN, "at most", 0.1),
    Target("unmodified send and recv at 1 MB", "stream", "bandwidth 1 MB blocking cubic", SHM, PLAIN, "at least", 1.3),
    Target("a peer asleep in epoll on the same CPU, 8 B", "stream", "latency 8 B epoll cubic, one CPU", SHM, PLAIN, "at most", 1),
    Target("a peer asleep in epoll on the other CPU, 8 B", "stream", "latency 8 B epoll cubic, two CPUs", SHM, PLAIN, "at most", 1.05),
    Target("redis GET, 1 client, cores idle", "redis", "GET 3 B, 1 client, pipeline 1, idle cores", SHM, PLAIN, "at least", 15),
    Target("redis GET, 50 clients, cores idle", "redis", "GET 3 B, 50 clients, pipeline 1, idle cores", SHM, PLAIN, "at least", 5),
    Target("redis GET, 50 clients, pipeline 16, cores idle", "redis", "GET 3 B, 50 clients, pipeline 16, idle cores", SHM, PLAIN, "at least", 1.5,
           cause="redis-server executes its own code for 85 % of its CPU here, and a run so short has 50 connections to start"),
    Target("redis GET, 1 client, one core", "redis", "GET 3 B, 1 client, pipeline 1, one core", SHM, PLAIN, "at least", 1.3),
    Target("redis GET, 50 clients, one core", "redis", "GET 3 B, 50 clients, pipeline 1, one core", SHM, PLAIN, "at least", 3),
    Target("redis GET, 1 client, two CPU hogs beside it", "redis", "GET 3 B, 1 client, pipeline 1, beside hogs", SHM, PLAIN, "at least", 0.9),
    Target("redis GET, 50 clients, two CPU hogs beside it", "redis", "GET 3 B, 50 clients, pipeline 1, beside hogs", SHM, PLAIN, "at least", 0.9),
    Target("redis GET of 64 KB, 50 clients, two CPU hogs beside it", "redis", "GET 64 KB, 50 clients, pipeline 1, beside hogs", SHM, PLAIN, "at least", 0.95),
    Target("nginx, 612 B, 50 connections, two CPU hogs beside it", "nginx", "612 B, 50 connections, beside hogs", SHM, PLAIN, "at least", 0.95),
    Target("nginx, 64 KB, 50 connections, two CPU hogs beside it", "nginx", "64 KB, 50 connections, beside hogs", SHM, PLAIN, "at least", 0.95),
    *(Target(f"pgbench, 8 clients, {place}", "postgres", f"8 clients, {place}", SHM, PLAIN, "at least", 1.15,
             cause="more backends than CPUs: each message must wake a sleeper, and a bell over TCP costs what the message itself would; what the library "
                   "executes, a tenth of the CPU time, comes on top") for place in ("idle cores", "one core")),
    Target("iperf3, two CPUs", "iperf", "cubic, idle cores", SHM, PLAIN, "at least", 1.3),
    Target("iperf3, one CPU", "iperf", "cubic, one core", SHM, PLAIN, "at least", 1.0),
    *(Target(f"windows of 64 sends of {size}, stream", "paper", f"6b window {size}", SHM, PLAIN, "at least", 1.5) for size in ("64 B", "256 B", "1 KB")),
    Target("LibRIPC's round trip of 50 B, both spinning", "ripc", "round trip 50 B spinning", SHM, PLAIN, "at most", 0.1),
    Target("LibRIPC's transfer of 80 MB, the default congestion control", "ripc", "transfer 80 MB", SHM, "plain TCP, default", "at most", 1 / 3),
    Target("LibRIPC's transfer of 80 MB, cubic", "ripc", "transfer 80 MB", SHM, PLAIN, "at most", 1 / 1.3),
    Target("growth of an operation's cost, 10 to 10,000 connections, against TCP's", "connections", "growth of the cost, 10 to 10000", SHM, PLAIN, "at most", 1),
]
# Absolute ones: the limit is of our value itself.
IDLE_MEMORY = [("memory of an idle connection among 10,000, both sides, shared memory", "connections", "memory 10000", SHM, 16384),
               ("memory of an idle connection among 10,000, both sides, user engine", "connections", "memory 10000", USER, 2 * 8192)]

SHORT_TARGETS = [Target(f"short connections, {place}", "short", f"short connections, {place}", PREFERRED, PLAIN, "at least", 0.8,
                        cause="20 system calls of ours a connection, each with its reason (doc/costs.md); a question to netlink alone is 5 us")
                 for place in ("two CPUs", "one CPU")]

USER_TARGETS = [
    Target("64 B one way, blocking", "stream", "latency 64 B blocking cubic", USER, PLAIN, "at most", 1.05),
    Target("64 B one way, spinning", "stream", "latency 64 B spinning cubic", USER, PLAIN, "at most", 1.05),
    Target("system calls of a 64 B message", "stream", "latency 64 B blocking cubic", USER, PLAIN, "at most", 1.0, "calls"),
    Target("64 KB bandwidth, blocking", "stream", "bandwidth 64 KB blocking cubic", USER, PLAIN, "at least", 0.9),
    Target("1 MB bandwidth against TCP + CRC", "stream", "bandwidth 1 MB blocking cubic", USER, "TCP + CRC", "at least", 0.95,
           cause="what is sent is copied once before the kernel copies it: the bytes that were checksummed are those that leave"),
    Target("1 MB bandwidth, CRC off", "stream", "bandwidth 1 MB blocking cubic", "user engine, CRC off", PLAIN, "at least", 0.9),
]

POSTED_TARGETS = [
    *(Target(f"posted sends, {size} one way, {wait}", "message", f"latency {size} {wait}", MESSAGES, PLAIN, "at most", 1.1)
      for wait in ("spinning", "blocking") for size in ("64 B", "4 KB")),
    Target("64 B messages a second, 64 outstanding, completed locally", "message", "rate 64 B, 64 outstanding, completed locally, spinning", MESSAGES,
           PLAIN, "at least", 10),
    Target("64 B messages a second, 64 outstanding, acknowledged by a spinning peer", "message",
           "rate 64 B, 64 outstanding, acknowledged by the peer, spinning", MESSAGES, PLAIN, "at least", 10),
    Target("64 B messages a second, 64 outstanding, acknowledged by a blocking peer", "message",
           "rate 64 B, 64 outstanding, acknowledged by the peer, blocking", MESSAGES, PLAIN, "at least", 1.2),
    *(Target(f"1 MB posted sends against TCP + CRC, {wait}", "message", f"window 1 MB {wait}", MESSAGES, "TCP + CRC", "at least", 0.95)
      for wait in ("spinning", "blocking")),
]

POSTED_SHM_TARGETS = [
    Target("posted sends of 8 B one way, shared memory", "message", "latency 8 B spinning", MESSAGES_SHM, "UCX posix+cma", "at most", 0.7),
    Target("posted sends of 1 MB, shared memory", "message", "window 1 MB spinning", MESSAGES_SHM, "UCX posix+cma", "at least", 1.2),
    Target("a Read of 8 B, shared memory", "onesided", "read 8 B spinning", MESSAGES_SHM, "a posted send, one way, shm engine", "at most", 1.5),
    Target("a Read of 8 B, memory from ddp_alloc", "onesided", "read 8 B spinning", MESSAGES_MAPPED, "a posted send, one way, shm engine", "at most", 0.5),
    Target("Writes of 4 KB, memory from ddp_alloc", "onesided", "write 4 KB", MESSAGES_MAPPED, "memcpy", "at least", 0.6),
    Target("Writes of 4 KB, shared memory", "onesided", "write 4 KB", MESSAGES_SHM, "memcpy", "at least", 0.5),
]

# Each end of a Send is half of it.
STEPS_TARGETS = [
    Target("instructions of a Send of 8 B, both ends, shared memory", "steps", "Send, polled for, received, posted again", MESSAGES_SHM, "", "at most", 900,
           cause="posting and polling each go through the shim, the connection and the completion queue, and take a lock in each (9 in all)"),
    Target("instructions of a Read of 8 B, memory from ddp_alloc", "steps", "Read of memory from ddp_alloc, to its completion", MESSAGES_SHM, "", "at most", 60,
           cause="two calls through the shim, and a completion through the queue; the reaching itself is about 190, and an inlined call would be needed for 60"),
]

SIW_TARGETS = [
    *(Target(f"{verb} of {size}, MTU 1500", "guest", f"{verb} latency {size}, MTU 1500", MESSAGES, SIW, "at most", 1.3)
      for verb in ("send", "write", "read") for size in ("2 B", "64 B", "1 KB")),
    *(Target(f"{verb} bandwidth, {size}, MTU 1500", "guest", f"{verb} bandwidth {size}, MTU 1500", MESSAGES, SIW, "at least", 1.0)
      for verb in ("send", "write", "read") for size in ("4 KB", "16 KB", "64 KB", "256 KB", "1 MB")),
]


@dataclasses.dataclass(frozen=True)
class Verdict:
    text: str
    wanted: str
    found: str
    is_met: bool | None  # None: not measured
    cause: str = ""


def judge(target, cases, modes_of):
    """`cases`: (bench, name) -> case as recorded; `modes_of`: bench -> the modes of its run."""
    wanted = f"{target.sense} {target.limit:.3g} times {target.peer}" if target.peer else f"{target.sense} {target.limit:.3g}"
    case = cases.get((target.bench, target.case))
    ours = _median(case, target.aspect, target.ours)
    peer = _median(case, target.aspect, target.peer) if target.peer else 1
    if not ours or not peer:
        return Verdict(target.text, wanted, "not measured", None)
    ratio = ours / peer
    is_met = ratio <= target.limit if target.sense == "at most" else ratio >= target.limit
    found = f"{ratio:.3g}" if ratio < 1000 else f"{ratio:.0f}"
    return Verdict(target.text, wanted, found + _by_mode(target, case, modes_of.get(target.bench)), is_met, target.cause)


def _by_mode(target, case, modes):
    if modes is None or target.aspect != "samples" or not target.peer:
        return ""
    ours, peer = modes.medians(case, target.ours), modes.medians(case, target.peer)
    return f" (near {ours[0] / peer[0]:.3g}, far {ours[1] / peer[1]:.3g})" if ours and peer else ""


def judge_all(cases, modes_of=None):
    """Verdicts by engine."""
    memory = {SHM: [], USER: []}
    for text, bench, name, way, limit in IDLE_MEMORY:
        value = _median(cases.get((bench, name)), "samples", way)
        found = "not measured" if value is None else f"{value:.0f} bytes"
        memory[way].append(Verdict(text, f"at most {limit} bytes", found, None if value is None else value <= limit))

    def judged(wanted):
        return [judge(t, cases, modes_of or {}) for t in wanted]

    return {"As rules have it": judged(SHORT_TARGETS),
            "Shared memory": judged(SHM_TARGETS) + memory[SHM],
            "User engine": judged(USER_TARGETS) + memory[USER] + judge_passthrough(cases),
            "Message mode": judged(POSTED_TARGETS + POSTED_SHM_TARGETS + STEPS_TARGETS + SIW_TARGETS)}


def judge_passthrough(cases):
    """What loading the library adds, as differences."""
    calls = [_added(c) for (bench, _), c in cases.items() if bench == "passthrough" and c["figure"] == "calls"]
    calls = [added for added in calls if added is not None]
    load = _added(cases.get(("passthrough", "start and end of a process")))
    return [_judge_added("a call on another descriptor, median over the calls", statistics.median(calls) if calls else None, 2, "ns"),
            _judge_added("start of a process", None if load is None else load / 1000, 2, "ms")]


def _judge_added(text, value, limit, unit):
    found = "not measured" if value is None else f"{value:.2f} {unit}"
    return Verdict(text, f"adds less than {limit} {unit}", found, None if value is None else value < limit)


def _added(case):
    ours, peer = _median(case, "samples", "library loaded, rules off"), _median(case, "samples", PLAIN)
    return None if ours is None or peer is None else ours - peer


def _median(case, aspect, way):
    values = (case or {}).get(aspect, {}).get(way)
    if not values:
        return None
    return statistics.median(values) if isinstance(values, list) else values
