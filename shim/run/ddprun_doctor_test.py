#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`ddprun doctor` beside servers of each kind. usage: ddprun_doctor_test.py DDPRUN"""

import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

DDPRUN = os.path.abspath(sys.argv.pop(1))
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
STRANGER, NOBODY = 12345, 65534  # the kernel says nobody's number for all that it cannot name
SERVER = """
import os, socket, sys
if len(sys.argv) > 2:
    os.setuid(int(sys.argv[2]))
listening = socket.create_server((sys.argv[1], 0))
print(listening.getsockname()[1], flush=True)
while True:
    connection = listening.accept()[0]
    while connection.recv(100):
        pass
    connection.close()
"""


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="ddpsock-test-")
        os.chmod(self.folder, 0o1777)
        self.addCleanup(shutil.rmtree, self.folder)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("DDPSOCK_") and k != "LD_PRELOAD"}
        self.env["DDPSOCK_REGISTRY_DIR"] = self.folder

    def serve(self, *launcher, words=("127.0.0.1",)):
        process = subprocess.Popen([*launcher, PYTHON, "-c", SERVER, *words], env=self.env, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process, process.stdout.readline().strip()

    def ask(self, address, *options, program=PYTHON, **more):
        done = subprocess.run([DDPRUN, "doctor", *options, program, address], env=self.env, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=60, **more)
        self.lines = done.stdout
        self.assertEqual(done.stderr, "")
        self.assertEqual(done.returncode, 1 if "\nmissing" in "\n" + done.stdout else 0, done.stdout)
        return done.returncode

    def says(self, verdict, what, text):
        self.assertRegex(self.lines, rf"(?m)^{verdict:<11} {what:<9} .*{text}")

    def missing(self):
        return [line.split()[1] for line in self.lines.splitlines() if line.startswith("missing")]


class SameHost(Case):
    def test_all_is_well_on_one_host(self):
        server, port = self.serve(DDPRUN)
        for address in f"127.0.0.1:{port}", f"localhost:{port}":
            self.assertEqual(self.ask(address), 0, self.lines)
            self.says("ok", "program", f"{PYTHON}: a preloaded library reaches it")
            self.says("ok", "registry", f"{self.folder}/ddpsock-{os.geteuid()}")
            self.says("ok", "address", f"127.0.0.1:{port} is of this host")
            self.says("ok", "rules", "the default: prefer")
            self.says("ok", "listener", rf"by the word of python3[.\d]* \(process {server.pid}\)")
            self.says("ok", "memory", "shared memory")

    def test_it_makes_nothing(self):
        self.ask("127.0.0.1:1")
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_plain_server_is_named(self):
        server, port = self.serve()
        self.assertEqual(self.ask(f"127.0.0.1:{port}"), 1)
        self.assertEqual(self.missing(), ["listener"])
        self.says("missing", "listener", rf"\(process {server.pid}\): it runs without the library; start it with ddprun")

    def test_a_server_whose_rules_are_off(self):
        server, port = self.serve(DDPRUN, "--off")
        self.ask(f"127.0.0.1:{port}")
        self.says("missing", "listener", rf"\(process {server.pid}\): its rules say plain TCP")

    def test_a_server_by_the_user_engine(self):
        _, port = self.serve(DDPRUN, "--engine", "user")
        self.ask(f"127.0.0.1:{port}")
        self.says("missing", "memory", "started with --engine user")
        self.assertEqual(self.ask(f"127.0.0.1:{port}", "--engine", "user"), 0)

    @unittest.skipUnless(os.geteuid() == 0, "needs root to become another user")
    def test_a_server_of_another_user(self):
        _, port = self.serve(DDPRUN, words=("127.0.0.1", str(STRANGER)))
        self.ask(f"127.0.0.1:{port}")
        self.assertEqual(self.missing(), ["memory"])
        self.says("missing", "memory", "run both as one user")
        _, port = self.serve(DDPRUN, words=("127.0.0.1", str(NOBODY)))
        self.ask(f"127.0.0.1:{port}")
        self.says("missing", "listener", "its user's number, 65534, is also that of all whom")

    def test_nobody_listens(self):
        with socket.create_server(("127.0.0.1", 0)) as gone:
            port = gone.getsockname()[1]
        self.ask(f"127.0.0.1:{port}")
        self.assertEqual(self.missing(), ["listener"])
        self.says("missing", "listener", "nobody listens there; start the server with ddprun")

    def test_ipv6_and_wildcards(self):
        _, port = self.serve(DDPRUN, words=("0.0.0.0",))
        for address in "127.0.0.5", "0.0.0.0":
            self.assertEqual(self.ask(f"{address}:{port}"), 0, self.lines)
        self.ask(f"[::1]:{port}")
        self.says("missing", "listener", "nobody listens there")

    def test_rules_and_programs(self):
        _, port = self.serve(DDPRUN)
        address = f"127.0.0.1:{port}"
        self.ask(address, "--off")
        self.says("missing", "rules", "the default: off")
        self.ask(address, "--profile", "redis")
        self.says("missing", "rules", r"redis.toml:\d+: off")
        self.assertEqual(self.ask(address, "--profile", "clients"), 0, self.lines)
        self.ask(address, program="/etc/passwd")
        self.says("missing", "program", "/etc/passwd: Permission denied")
        self.ask(address, program="no-such-program")
        self.says("missing", "program", "No such file")

    def test_limits(self):
        _, port = self.serve(DDPRUN)
        for limit, value, text in ((resource.RLIMIT_NOFILE, 64, "64 descriptors are few"),
                                   (resource.RLIMIT_AS, 1 << 31, "address space is limited"),
                                   (resource.RLIMIT_FSIZE, 4096, "files are limited")):
            self.ask(f"127.0.0.1:{port}",
                     preexec_fn=lambda limit=limit, value=value: resource.setrlimit(limit, (value, resource.RLIM_INFINITY)
                                                                                   if limit != resource.RLIMIT_NOFILE
                                                                                   else (value, value)))
            self.says("missing", "limits", text)
            self.assertEqual(self.missing(), ["limits"])

    def test_the_registry(self):
        self.env["DDPSOCK_REGISTRY_DIR"] = self.folder + "/none"
        self.ask("127.0.0.1:1")
        self.says("missing", "registry", "No such file")
        self.env["DDPSOCK_REGISTRY_DIR"] = self.folder
        with open(f"{self.folder}/ddpsock-{os.geteuid()}", "w", encoding="ascii") as f:
            f.write("x")
        self.ask("127.0.0.1:1")
        self.says("missing", "registry", "is not what the library writes; remove it")

    def test_addresses_that_are_none(self):
        for address in "127.0.0.1", "::1:80", ":80", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:x y", "[::1]", "":
            self.assertEqual(self.ask(address), 1, address)
            self.assertEqual(self.missing(), ["address"], self.lines)

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("ip"), "needs root to make a network namespace")
    def test_another_host(self):
        # Seen from a namespace of its own, whatever serves in the other one is of another host.
        done = subprocess.run(["unshare", "--net", PYTHON, __file__, DDPRUN, "OtherHost"], capture_output=True,
                              text=True, timeout=120, env={**self.env, "DDPSOCK_TEST_ELSEWHERE": "1"})
        self.assertEqual(done.returncode, 0, done.stderr)


@unittest.skipUnless(os.environ.get("DDPSOCK_TEST_ELSEWHERE"), "runs in a network namespace that the test above makes")
class OtherHost(Case):
    @classmethod
    def setUpClass(cls):
        cls.other = subprocess.Popen(["unshare", "--net", "sh", "-c", "ip link set lo up; echo; exec cat"], stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE)
        cls.addClassCleanup(cls.other.communicate)
        cls.other.stdout.readline()
        inside = ["nsenter", "--net", f"--target={cls.other.pid}"]
        for command in (["ip", "link", "set", "lo", "up"],
                        ["ip", "link", "add", "here", "type", "veth", "peer", "name", "there", "netns", str(cls.other.pid)],
                        ["ip", "addr", "add", "192.0.2.1/24", "dev", "here"], ["ip", "link", "set", "here", "up"],
                        [*inside, "ip", "addr", "add", "192.0.2.2/24", "dev", "there"],
                        [*inside, "ip", "link", "set", "there", "up"]):
            subprocess.run(command, check=True, capture_output=True)
        cls.inside = inside

    def serve_there(self, *launcher):
        return self.serve(*self.inside, *launcher, words=("192.0.2.2",))[1]

    def test_another_host(self):
        port = self.serve_there(DDPRUN, "--require")
        address = f"192.0.2.2:{port}"
        self.ask(address)
        self.says("ok", "server", "takes connections")
        self.says("missing", "proof", "plain TCP under prefer: require it by a rule, at both ends")
        self.says("cannot know", "mpa", "--probe sends it a Request")
        self.assertEqual(self.ask(address, "--require"), 0, self.lines)
        self.assertEqual(self.ask(address, "--require", "--probe"), 0, self.lines)
        self.says("ok", "mpa", "answers: MPA revision 2, with CRC, by ddpsock")

    def test_servers_that_do_not_speak_it(self):
        port = self.serve_there()
        self.ask(f"192.0.2.2:{port}", "--require", "--probe")
        self.says("missing", "mpa", "no answer within 5 seconds")
        self.ask("192.0.2.2:1", "--require")
        self.says("missing", "server", "Connection refused")

    def test_without_leave_nothing_is_said(self):
        said = []

        def listen(listening):
            connection = listening.accept()[0]
            said.append(connection.recv(100))
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            connection.close()

        # Of this namespace, and yet not of this host: as the other side sees it.
        with socket.create_server(("192.0.2.1", 0)) as listening:
            for options, what in (((), b""), (("--probe",), b"MPA ID Req Frame")):
                thread = threading.Thread(target=listen, args=(listening,))
                thread.start()
                done = subprocess.run([*self.inside, DDPRUN, "doctor", "--require", *options, PYTHON,
                                       f"192.0.2.1:{listening.getsockname()[1]}"], env=self.env, capture_output=True, text=True,
                                      timeout=60)
                thread.join()
                self.assertEqual(said.pop()[:16], what, done.stdout)
                self.lines = done.stdout
        self.says("missing", "mpa", "does not speak MPA")


if __name__ == "__main__":
    unittest.main()
