#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""ddprun as a user meets it: what it refuses, what it says, what it hands on. usage: ddprun_test.py DDPRUN"""

import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

DDPRUN = os.path.abspath(sys.argv.pop(1))
LIBRARY = os.path.join(os.path.dirname(DDPRUN), "libddpsock.so")
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
STRANGER = 12345
PT_INTERP, PT_NOTE = 3, 4

# Echoes, one connection after the other.
SERVER = """
import socket
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
while True:
    connection = listening.accept()[0]
    while data := connection.recv(100):
        connection.sendall(data)
"""
# Connects to ports, talks with those that echo, and closes when it is told to.
CLIENT = """
import socket, sys
connections = []
for word in sys.argv[1:]:
    connections.append(socket.create_connection(("127.0.0.1", int(word.removeprefix("echo:")))))
    for _ in range(8 if word.startswith("echo:") else 0):
        connections[-1].sendall(b"x")
        connections[-1].recv(100)
print("own output", flush=True)
sys.stdin.read()
for connection in connections:
    connection.close()
sys.exit(7)
"""
WAITS_FOR_TERM = """
import signal, sys
def asked(*_):
    print("asked", flush=True)
    sys.exit(3)
signal.signal(signal.SIGTERM, asked)
print("ready", flush=True)
while True:
    signal.pause()
"""


def ddprun(*args, **options):
    env = {k: v for k, v in os.environ.items() if not k.startswith("DDPSOCK_") and k != "LD_PRELOAD"}
    env.update(options.pop("env", {}))
    return subprocess.run([DDPRUN, *args], env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          timeout=30, **options)


def start(case, command, env):
    """A program with pipes, which ends with the test."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("DDPSOCK_") and k != "LD_PRELOAD"}
    process = subprocess.Popen(command, env={**clean, **env}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True)
    case.addCleanup(process.communicate)
    case.addCleanup(process.kill)
    return process


def make_elf(path, parts, elf_class=2, machine=None):
    """A file with an ELF header of this machine and the given (type, bytes) parts; it need not run."""
    with open("/proc/self/exe", "rb") as f:
        ident, own_machine = f.read(16), struct.unpack("<H", f.read(4)[2:])[0]
    ident = ident[:4] + bytes([elf_class]) + ident[5:]
    header_size, entry_size = 64, 56
    at = header_size + entry_size * len(parts)
    table, body = b"", b""
    for kind, data in parts:
        table += struct.pack("<IIQQQQQQ", kind, 4, at + len(body), 0, 0, len(data), len(data), 1)
        body += data
    header = ident + struct.pack("<HHIQQQIHHHHHH", 3, machine or own_machine, 1, 0, header_size, 0, 0,
                                 header_size, entry_size, len(parts), 0, 0, 0)
    with open(path, "wb") as f:
        f.write(header + table + body)
    os.chmod(path, 0o755)
    return path


class DdprunTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="ddpsock-test-")
        os.chmod(self.folder, 0o755)
        self.addCleanup(shutil.rmtree, self.folder)

    def file(self, name, text="", mode=0o755):
        path = os.path.join(self.folder, name)
        with open(path, "w") as f:
            f.write(text)
        os.chmod(path, mode)
        return path

    def elf(self, name, parts, **options):
        return make_elf(os.path.join(self.folder, name), parts, **options)

    def not_covered(self, path, reason):
        refused = ddprun("--require", path)
        self.assertEqual(refused.returncode, 125, refused.stderr)
        self.assertIn(f"{path}: not covered: {reason}", refused.stderr)
        explained = ddprun("--explain", "--address", "127.0.0.1", "--port", "80", path)
        self.assertIn(f"not covered: {reason}", explained.stdout)
        self.assertIn("verdict   plain TCP", explained.stdout)

    def test_hands_on_library_and_rules(self):
        rules = self.file("rules.toml", '[[rule]]\nprogram = "redis-*"\naction = "require"\n')
        out = ddprun("--rules", rules, "--off", "--engine", "user", "--", "env", env={"LD_PRELOAD": "/none.so"}).stdout
        self.assertIn(f"LD_PRELOAD=/none.so:{LIBRARY}\n", out)
        self.assertIn("DDPSOCK_RULES=ddp1;r1,redis-*,*,*,*,require,-;d,off,-\n", out)
        self.assertIn("DDPSOCK_ENGINE=user\n", out)

    def test_nested_runs_preload_once(self):
        out = ddprun(DDPRUN, "env").stdout
        self.assertIn(f"LD_PRELOAD={LIBRARY}\n", out)

    def test_arguments_behind_the_program_are_its_own(self):
        self.assertEqual(ddprun("echo", "--require", "-h", "--").stdout, "--require -h --\n")
        self.assertEqual(ddprun("--", "echo", "--off").stdout, "--off\n")

    def test_exit_codes_are_those_of_env(self):
        self.assertEqual(ddprun("sh", "-c", "exit 7").returncode, 7)
        self.assertEqual(ddprun("no-such-program-here").returncode, 127)
        self.assertEqual(ddprun("/etc/passwd").returncode, 126)
        self.assertEqual(ddprun(self.folder).returncode, 126)
        for wrong in [[], ["--no-such-option", "true"], ["--require", "--off", "true"], ["--engine", "x", "true"]]:
            self.assertEqual(ddprun(*wrong).returncode, 125, wrong)

    def test_bad_rules_stop_before_the_program_starts(self):
        touched = os.path.join(self.folder, "touched")
        rules = self.file("rules.toml", '[[rule]]\naction = "off"\nport = 70000\n')
        bad = ddprun("--rules", rules, "touch", touched)
        self.assertEqual(bad.returncode, 125)
        self.assertIn(f"{rules}:3:8: expected port: a number from 1 to 65535", bad.stderr)
        self.assertFalse(os.path.exists(touched))
        for missing in [os.path.join(self.folder, "none"), self.folder]:
            self.assertEqual(ddprun("--rules", missing, "true").returncode, 125)

    def test_bad_environment_is_said_once_and_the_program_runs(self):
        env = {**os.environ, "LD_PRELOAD": LIBRARY, "DDPSOCK_RULES": "ddp1;d,perhaps,-"}
        out = subprocess.run(["/bin/echo", "here"], env=env, capture_output=True, text=True, timeout=30)
        self.assertEqual(out.stdout, "here\n")
        self.assertEqual(out.stderr, "ddpsock: DDPSOCK_RULES is malformed, the library stays off: "
                                     "expected an action: require, prefer or off\n")

    def test_static_program(self):
        self.not_covered(self.elf("static", [(1, b"")]), "it is statically linked")

    def test_the_loader_itself_is_looked_through(self):
        loader = "/lib64/ld-linux-x86-64.so.2"
        if not os.path.exists(loader):
            self.skipTest(f"no {loader} here")
        for options in [], ["--library-path", "/lib", "--inhibit-cache", "--argv0", "x"]:
            done = ddprun("--require", loader, *options, shutil.which("sh"), "-c", "exit 4")
            self.assertEqual(done.returncode, 4, done.stderr)
        static = self.elf("static", [(1, b"")])
        refused = ddprun("--require", loader, "--library-path", "/lib", static)
        self.assertEqual(refused.returncode, 125, refused.stderr)
        self.assertIn("not covered: it is statically linked", refused.stderr)
        self.assertIn("not covered: it is the dynamic loader", ddprun(loader, "--version").stderr)

    def test_go_program(self):
        note = struct.pack("<III", 4, 4, 4) + b"Go\0\0id\0\0"
        self.not_covered(self.elf("go", [(PT_NOTE, note)]), "it is a Go program")
        dynamic = [(PT_INTERP, b"/lib64/ld-linux-x86-64.so.2\0"), (PT_NOTE, note)]
        self.not_covered(self.elf("dynamic-go", dynamic), "it is a Go program")

    def test_other_machines_and_libcs(self):
        self.not_covered(self.elf("musl", [(PT_INTERP, b"/lib/ld-musl-x86_64.so.1\0")]), "it uses musl")
        self.not_covered(self.elf("narrow", [], elf_class=1), "it is not a 64-bit program")
        self.not_covered(self.elf("foreign", [], machine=4), "it is built for another machine")
        self.not_covered(self.file("text", "no #! line\n"), "it is neither an ELF file nor a script")

    def test_malformed_files_are_no_worse(self):
        with open(self.elf("whole", [(PT_NOTE, b"\xff" * 40), (PT_INTERP, b"/x\0")]), "rb") as f:
            whole = f.read()
        for size in range(0, len(whole), 3):
            path = os.path.join(self.folder, "cut")
            with open(path, "wb") as f:
                f.write(whole[:size])
            os.chmod(path, 0o755)
            self.assertEqual(ddprun("--explain", "--address", "::1", "--port", "1", path).returncode, 0, size)

    def test_scripts_are_followed_to_their_interpreter(self):
        static = self.elf("static", [(1, b"")])
        self.not_covered(self.file("script", f"#!{static} -x\n"), "it is statically linked")
        self.not_covered(self.file("by-env", f"#!/usr/bin/env -S X=1 {static}\n"), "it is statically linked")
        covered = ddprun("--require", self.file("fine", "#!/bin/sh\nexit 3\n"))
        self.assertEqual(covered.returncode, 3, covered.stderr)

    def test_privileged_program(self):
        if os.geteuid() != 0:
            self.skipTest("needs root to make a setuid file of another user")
        for mode, what in [(0o4755, "setuid"), (0o2755, "setgid")]:
            path = os.path.join(self.folder, what)
            shutil.copy("/bin/true", path)
            os.chown(path, STRANGER, STRANGER)
            os.chmod(path, mode)
            self.not_covered(path, f"it is {what}")
            warned = ddprun(path)
            self.assertEqual(warned.returncode, 0)
            self.assertIn("it runs without DDP", warned.stderr)

    def test_explain_names_the_rule(self):
        rules = self.file("rules.toml", '[[rule]]\nprogram = "sh"\nrole = "server"\naddress = "10.0.0.0/8"\n'
                                        'port = "80-90"\naction = "require"\ncrc = false\n')
        ask = ["--explain", "--rules", rules, "--role", "server", "--port", "81"]
        self.assertEqual(ddprun(*ask, "--address", "10.1.1.1", "sh").stdout,
                         f"program   {shutil.which('sh')}: covered\n"
                         f"rule      {rules}:1: require, without CRC if the peer agrees\n"
                         "verdict   DDP; an error (EPROTO) for clients that do not speak it\n"
                         "note      passed to another program it returns to plain TCP; if it cannot, it is refused (EOPNOTSUPP), "
                         "or reset if it was accepted and nothing was sent on it\n")
        self.assertIn("no rule matches; the default: prefer", ddprun(*ask, "--address", "11.1.1.1", "sh").stdout)
        self.assertEqual(ddprun("--explain", "sh").returncode, 125)
        self.assertEqual(ddprun(*ask, "--address", "localhost", "sh").returncode, 125)

    def test_profiles_are_listed_shown_and_handed_on(self):
        listed = ddprun("profiles").stdout
        names = [line.split()[0] for line in listed.splitlines()]
        self.assertLessEqual({"redis", "nginx", "openssh", "postgresql"}, set(names))
        for line in listed.splitlines():
            self.assertGreater(len(line.split(None, 1)[1]), 20, line)
        for name in names:
            shown = ddprun("profiles", name)
            self.assertIn("[[rule]]", shown.stdout)
            handed = ddprun("--profile", name, "env")
            self.assertEqual(handed.returncode, 0, handed.stderr)
            self.assertIn("DDPSOCK_RULES=ddp1;r", handed.stdout)
        for wrong in ["profiles", "none"], ["--profile", "none", "true"], ["--profile", "../redis", "true"], \
                ["--profile", "redis", "--rules", "x", "true"]:
            self.assertEqual(ddprun(*wrong).returncode, 125, wrong)

    def test_words_of_its_own_are_programs_behind_an_option_or_by_a_path(self):
        for word in "enable", "disable", "doctor", "profiles":
            path = self.file(word, "#!/bin/sh\necho ran $0 $1\n")
            env = {"PATH": f"{self.folder}:{os.environ['PATH']}"}
            for arguments in [["--", word, "x"], ["--off", word, "x"], [path, "x"], ["--", path, "x"]]:
                self.assertEqual(ddprun(*arguments, env=env).stdout, f"ran {path} x\n", arguments)
            self.assertNotIn("ran", ddprun(word, "x", env=env).stdout)


class Afterwards(unittest.TestCase):
    """What became of connections. The server here is plain, or another program under ddprun."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="ddpsock-test-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.env = {"DDPSOCK_REGISTRY_DIR": self.folder, "TMPDIR": self.folder}

    def serve(self):
        server = start(self, [DDPRUN, PYTHON, "-c", SERVER], self.env)
        return server, server.stdout.readline().strip()

    def test_after_a_program_its_connections_and_reasons(self):
        with socket.create_server(("127.0.0.1", 0)) as plain:
            _, port = self.serve()
            ports = [str(plain.getsockname()[1]), "echo:" + port]
            done = ddprun("--explain=after", "--", PYTHON, "-c", CLIENT, *ports, env=self.env)
        self.assertEqual((done.returncode, done.stdout), (7, "own output\n"))
        self.assertRegex(done.stderr, f"connect 127.0.0.1:{ports[0]}: plain TCP: the listener on this host is not in DDPMODE")
        self.assertRegex(done.stderr, f"connect 127.0.0.1:{port}: DDP.*: the listener on this host is in DDPMODE; "
                                      "in the end DDP in shared memory")
        self.assertEqual([name for name in os.listdir(self.folder) if not name.startswith("ddpsock-")], [])

    def test_after_many_they_are_counted(self):
        with socket.create_server(("127.0.0.1", 0)) as plain:
            port = str(plain.getsockname()[1])
            done = ddprun("--explain=after", PYTHON, "-c", CLIENT, *[port] * 60, env=self.env)
        self.assertRegex(done.stderr, "and 10 more; in all:\n +60 plain TCP: ")

    def test_after_a_program_without_any_and_one_that_cannot_start(self):
        done = ddprun("--explain=after", "true", env=self.env)
        self.assertEqual(done.returncode, 0)
        self.assertIn("none by TCP", done.stderr)
        self.assertEqual(ddprun("--explain=after", "no-such-program", env=self.env).returncode, 127)
        self.assertEqual(ddprun("--explain=after", "sh", "-c", "kill -9 $$", env=self.env).returncode, 137)
        self.assertEqual(ddprun("--explain=perhaps", "true").returncode, 125)

    def test_signals_go_to_the_program(self):
        program = start(self, [DDPRUN, "--explain=after", PYTHON, "-c", WAITS_FOR_TERM], self.env)
        self.assertEqual(program.stdout.readline(), "ready\n")
        program.terminate()
        self.assertEqual(program.stdout.readline(), "asked\n")
        self.assertEqual(program.wait(30), 3)

    def test_of_a_process(self):
        server, port = self.serve()
        with socket.create_server(("127.0.0.1", 0)) as plain:
            client = start(self, [DDPRUN, PYTHON, "-c", CLIENT, "echo:" + port, str(plain.getsockname()[1])],
                           self.env)
            self.assertEqual(client.stdout.readline(), "own output\n")
            said = ddprun("--explain", str(client.pid))
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertRegex(said.stdout, r"^program   python3[.\d]* \d+: has the library\nrules     ddp1;d,prefer,-\n")
        self.assertRegex(said.stdout, f"connect   127.0.0.1:\\d+ -> 127.0.0.1:{port}: DDP in shared memory: ")
        self.assertIn("plain     1 connections so far, the last: the listener on this host is not in DDPMODE\n", said.stdout)

    def test_of_processes_that_have_none(self):
        without = ddprun("--explain", str(os.getpid()))
        self.assertEqual((without.returncode, "was not started by ddprun" in without.stdout), (1, True), without.stdout)
        gone = subprocess.Popen(["true"])
        gone.wait()
        self.assertIn("there is no process", ddprun("--explain", str(gone.pid)).stderr)


if __name__ == "__main__":
    unittest.main()
