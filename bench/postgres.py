# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""bench/postgres: an unmodified PostgreSQL asked by an unmodified pgbench over TCP."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile

import machine
import ports
import programs
import ways
from figure import Figure
from recorder import Failed

TITLE = "PostgreSQL and pgbench"
QUESTION = ("How many transactions does an unmodified PostgreSQL serve to an unmodified pgbench (read only, prepared, scale 1, over TCP)? "
            "Both run as one unprivileged user.")
CLIENTS = (1, 8)
PREPARE_SECONDS = 120
PROBE = 100  # transactions a client, to learn how many fill a sample
TRACED = 2400  # transactions under strace
USER = "postgres"
FIGURES = [Figure("select", "Read-only transactions", "bars", note="In brackets transactions a second.")]


def measure(recorder):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        try:
            site = Site(folder)
        except Failed as failed:
            recorder.problem(f"postgres: {failed}")
            return
        for placement in programs.PLACEMENTS[:1] if recorder.is_quick else programs.PLACEMENTS:
            with contextlib.ExitStack() as stack:
                servers = {}
                for way in [ways.PLAIN, *ways.engines()]:
                    try:
                        servers[way] = stack.enter_context(site.start(way, placement))
                    except Failed as failed:
                        recorder.problem(f"postgres, {placement.name}: {way.name}: {failed}")
                stack.enter_context(programs.hogs(placement))
                for clients in CLIENTS:
                    label = f"{clients} client{'s' if clients > 1 else ''}, {placement.name}"
                    if recorder.wants(label):
                        compare(recorder, site, placement, servers, clients, label)


class Site:
    """A folder of an unprivileged user with a database for each way, and copies of what that user must be able to read."""

    def __init__(self, folder):
        found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/pgbench"))
        if not found:
            raise Failed("there is no pgbench below /usr/lib/postgresql")
        self.bin, self.folder = found[-1].parent, folder
        # PostgreSQL refuses to run as root.
        self.become = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups") if os.geteuid() == 0 else ()
        if self.become:
            shutil.chown(folder, USER, USER)
        if machine.has_product():
            for path in (machine.DDPRUN, machine.LIBRARY):
                shutil.copy(path, folder)
        self._prepare()

    def _prepare(self):
        data = self.folder / "template"
        self._do("initdb", "-D", str(data), "-A", "trust", "-U", USER, "--no-sync", "--no-locale", "-E", "UTF8")
        with (data / "postgresql.conf").open("a") as f:
            f.write(f"fsync = off\nautovacuum = off\nunix_socket_directories = '{self.folder}'\nlisten_addresses = '127.0.0.1'\n")
        with self._server(ways.PLAIN, programs.PLACEMENTS[0], data) as server:
            self._do("pgbench", "-i", "-q", "-h", "127.0.0.1", "-p", str(server.port), "-U", USER, "postgres")

    def _do(self, program, *options):
        done = subprocess.run([*self.become, str(self.bin / program), *options], cwd=self.folder, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=PREPARE_SECONDS)
        if done.returncode != 0:
            raise Failed(f"{program}: {done.stderr[-1000:]}")

    def own(self, way):
        """The same way, run from the copies."""
        if not way.prefix:
            return way
        return ways.Way(way.name, (str(self.folder / machine.DDPRUN.name), *way.prefix[1:]), way.options, way.env)

    def start(self, way, placement):
        data = self.folder / f"{way.name} {placement.name}".replace(" ", "-")
        subprocess.run(["cp", "-a", str(self.folder / "template"), str(data)], check=True)
        return self._server(way, placement, data)

    def _server(self, way, placement, data):
        port = ports.free_port()
        # SIGINT: end the sessions, then end.
        return programs.Server(self.own(way), placement, [str(self.bin / "postgres"), "-D", str(data), "-p", str(port)], port,
                               prefix=self.become, folder=self.folder, end=signal.SIGINT)

    def ask(self, way, placement, server, clients, each, tracer=()):
        """Transactions a second, how many there were, the client's CPU time, for `each` transactions a client."""
        command = [str(self.bin / "pgbench"), "-n", "-S", "-M", "prepared", "-t", str(each), "-c", str(clients), "-j", "1",
                   "-h", "127.0.0.1", "-p", str(server.port), "-U", USER, "postgres"]
        output, cpu = programs.run_client(self.own(way), placement, command, prefix=self.become, cwd=self.folder, tracer=tracer)
        return *read(output), cpu


def compare(recorder, site, placement, servers, clients, label):
    each = {}

    def sample(way):
        if way not in each:
            rate, _, _ = site.ask(way, placement, servers[way], clients, PROBE)
            each[way] = max(PROBE, int(rate * recorder.seconds * 3 / clients))
        before = servers[way].cpu_seconds()
        rate, transactions, cpu = site.ask(way, placement, servers[way], clients, each[way])
        return {"rate": rate, "cpu_us": (cpu + servers[way].cpu_seconds() - before) / transactions * 1e6}

    recorder.compare("select", label, label, "transactions/s", "higher", list(servers), sample, "rate", per="transaction")
    if placement == programs.PLACEMENTS[0] and not recorder.is_quick:
        for way in servers:
            total = programs.count_system_calls(
                servers[way], site.folder, lambda tracer: site.ask(way, placement, servers[way], clients, TRACED // clients, tracer))
            recorder.cases[-1].calls[way.name] = round(total / (TRACED // clients * clients), 3)


def read(output):
    """Transactions a second and how many there were."""
    rate = re.search(r"^tps = ([\d.]+)", output, re.M)
    count = re.search(r"^number of transactions actually processed: (\d+)", output, re.M)
    failed = re.search(r"^number of failed transactions: (\d+)", output, re.M)
    if not rate or not count or not int(count[1]) or (failed and int(failed[1])):
        raise Failed(f"pgbench: {output[-800:]}")
    return float(rate[1]), int(count[1])
