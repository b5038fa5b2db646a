#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`ddprun enable` and `disable` with a systemd that runs: as the first process of namespaces of its own, with units made for it.

systemd_test.py DDPRUN EXCHANGE
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

DDPRUN, EXCHANGE = map(os.path.abspath, sys.argv[1:3])
del sys.argv[1:3]
SYSTEMD = "/lib/systemd/systemd"
SECONDS = 30

# Everything of the host's that systemd would take for its own is covered, and its units are those of the test.
PREPARE = """
set -e
mount --make-rprivate /
mount -t proc proc /proc
mount -t cgroup2 cgroup2 /sys/fs/cgroup
for folder in /run /dev/shm /etc/systemd/system; do mount -t tmpfs -o mode=0755 tmpfs $folder; done
chmod 1777 /dev/shm
cp "$0"/* /etc/systemd/system
ip link set lo up
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=test SYSTEMD_UNIT_PATH=/etc/systemd/system SYSTEMD_LOG_TARGET=console \
  /lib/systemd/systemd --system systemd.unit=trial.target
"""
TARGET = "[Unit]\nDescription=nothing\nDefaultDependencies=no\n"
SERVICE = ("[Unit]\nDescription=a server\nDefaultDependencies=no\n[Service]\nStandardOutput=truncate:/run/out\n"
           f"ExecStart={EXCHANGE} server\n")
SANDBOX = ("User=daemon\nNoNewPrivileges=yes\nProtectSystem=strict\nPrivateTmp=yes\nMemoryDenyWriteExecute=yes\n"
           "SystemCallFilter=@system-service\nRestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX\n")


def find_cgroups():
    """Where the unified hierarchy is mounted, or None."""
    for line in pathlib.Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2":
            return pathlib.Path(place)
    return None


class Manager:
    """systemd in its namespaces; what it writes goes to `log`."""

    def __init__(self, units, log):
        self.cgroup = find_cgroups() / f"ddpsock-test-{os.getpid()}"
        self.cgroup.mkdir()
        try:
            self.unshare = subprocess.Popen(
                ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--net", "--uts", "--ipc", "--cgroup", "sh", "-c", PREPARE, units],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=self.enter)
        except OSError:
            self.cgroup.rmdir()
            raise

    def enter(self):
        (self.cgroup / "cgroup.procs").write_text(str(os.getpid()))

    def first_process(self):
        children = pathlib.Path(f"/proc/{self.unshare.pid}/task/{self.unshare.pid}/children").read_text().split()
        return children[0] if children else None

    def run(self, *command, seconds=SECONDS, **options):
        # As a service has none of the variables of these tests, nor has its client: it would look into another registry.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DDPSOCK_")}
        return subprocess.run(["nsenter", "--target", self.first_process(), "--mount", "--pid", "--net", "--uts", "--ipc", "--cgroup",
                               "--wd=/", "--", *command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, env=environment, **options)

    def is_up(self):
        if self.unshare.poll() is not None or self.first_process() is None:
            return False
        return self.run("systemctl", "is-active", "trial.target").stdout.strip() == "active"

    def end(self):
        self.unshare.kill()
        self.unshare.wait()
        deadline = time.monotonic() + SECONDS
        while (self.cgroup / "cgroup.procs").exists():
            for folder, _, _ in os.walk(self.cgroup, topdown=False):
                try:
                    os.rmdir(folder)
                except OSError:
                    if time.monotonic() > deadline:
                        raise
            time.sleep(0.05)


class Systemd(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if os.geteuid() != 0:
            raise unittest.SkipTest("only the superuser starts a systemd")
        if not os.path.exists(SYSTEMD) or not shutil.which("systemd-analyze"):
            raise unittest.SkipTest("systemd is not installed")
        if find_cgroups() is None:
            raise unittest.SkipTest("there is no unified hierarchy of control groups")
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="ddpsock-test-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        units = cls.folder / "units"
        units.mkdir()
        for name, text in (("trial.target", TARGET), ("server.service", SERVICE), ("guarded.service", SERVICE + SANDBOX)):
            (units / name).write_text(text)
        cls.log = open(cls.folder / "log", "w+", encoding="utf-8")
        cls.addClassCleanup(cls.log.close)
        cls.manager = Manager(str(units), cls.log)
        cls.addClassCleanup(cls.manager.end)
        deadline = time.monotonic() + SECONDS
        while not cls.manager.is_up():
            if cls.manager.unshare.poll() is not None or time.monotonic() > deadline:
                raise AssertionError("systemd does not start: " + cls.told())
            time.sleep(0.1)

    @classmethod
    def told(cls):
        return (cls.folder / "log").read_text()[-2000:]

    def run_it(self, *command):
        done = self.manager.run(*command)
        self.assertEqual(done.returncode, 0, f"{command}: {done.stdout}{done.stderr}{self.told()}")
        return done

    def said(self, unit, pattern):
        deadline = time.monotonic() + SECONDS
        while not (found := re.search(pattern, self.manager.run("cat", "/run/out").stdout)):
            self.assertLess(time.monotonic(), deadline, self.manager.run("systemctl", "status", unit).stdout + self.told())
            time.sleep(0.05)
        return found[1]

    def serve(self, unit):
        """Restarts the service, and lets a client of the library's talk to it: by what its connections were served."""
        # The service empties the file once it starts, which restart does not wait for.
        self.run_it("rm", "-f", "/run/out")
        self.run_it("systemctl", "restart", unit)
        port = self.said(unit, r"port (\d+)\n")
        self.run_it(DDPRUN, "--prefer", "--", EXCHANGE, "client", port)
        return set(self.said(unit, r"ok (.*)\n").split())

    def check(self, unit, engine, *options):
        self.assertEqual(self.serve(unit), {"plain"})
        enabled = self.run_it(DDPRUN, "enable", unit, *options)
        self.assertEqual(enabled.stderr, "")
        self.assertIn(f"systemctl restart {unit}", enabled.stdout)
        verified = self.run_it("systemd-analyze", "verify", f"/etc/systemd/system/{unit}")
        self.assertEqual((verified.stdout, verified.stderr), ("", ""))
        # Loaded already.
        shown = self.run_it("systemctl", "show", "-p", "NeedDaemonReload,DropInPaths", unit).stdout
        self.assertIn("NeedDaemonReload=no", shown)
        self.assertIn("50-ddpsock.conf", shown)
        environment = self.run_it("systemctl", "show", "-p", "Environment", unit).stdout
        self.assertEqual(self.serve(unit), {engine}, environment + self.told())
        self.run_it(DDPRUN, "disable", unit)
        shown = self.run_it("systemctl", "show", "-p", "NeedDaemonReload,DropInPaths", unit).stdout
        self.assertEqual(sorted(shown.split()), ["DropInPaths=", "NeedDaemonReload=no"])
        self.assertEqual(self.serve(unit), {"plain"})

    def test_service(self):
        self.check("server.service", "shm")

    def test_guarded_service(self):
        refused = self.manager.run(DDPRUN, "enable", "guarded.service")
        self.assertEqual(refused.returncode, 125, refused.stderr)
        self.assertIn("AF_NETLINK", refused.stderr)
        # Of another user than the client.
        self.check("guarded.service", "user", "--netlink")


if __name__ == "__main__":
    unittest.main()
