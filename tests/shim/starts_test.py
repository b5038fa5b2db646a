#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Programs that are started in ways which a preloaded library may not expect: beside other such libraries, under tools, under
limits, in namespaces, without what processes mostly have. What works natively works under ddprun, in DDPMODE unless the case
says otherwise.

starts_test.py DDPRUN ENGINE EXCHANGE EXCHANGE_STATIC EXCHANGE_SOURCE [unittest arguments]
"""

import errno
import glob
import os
import pathlib
import platform
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

import confine
import exchange

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
LOADER = "/lib64/ld-linux-x86-64.so.2"
NOBODY = 65533
IS_SUPERUSER = os.geteuid() == 0
POLICIES = "prefer", "require"
SIDES = "both", "server", "client"  # who starts so
PLAIN = {"plain"}
# Tools that take seconds to start are tried in fewer ways, unless DDPSOCK_STARTS=all.
IS_WHOLE = os.environ.get("DDPSOCK_STARTS") == "all"
SLOW = {} if IS_WHOLE else {"policies": ("require",), "sides": ("pair",)}


def find_library(name):
    found = glob.glob(f"/usr/lib/x86_64-linux-gnu/{name}") + glob.glob(f"/usr/lib/{name}") + glob.glob(f"/usr/lib64/{name}")
    return found[0] if found else None


def limits(**values):
    """A function that sets them in a child before it executes."""
    def set_limits():
        for name, value in values.items():
            what = getattr(resource, "RLIMIT_" + name.upper())
            top = resource.getrlimit(what)[1]
            resource.setrlimit(what, (value, top if top == -1 or top >= value else value))
    return set_limits


class Starts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="ddpsock-test-")
        os.chmod(cls.folder, 0o755)
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        # A program that every user may execute, wherever the build lies.
        cls.program = shutil.copy(EXCHANGE, os.path.join(cls.folder, "exchange"))
        cls.library = os.path.join(os.path.dirname(DDPRUN), "libddpsock.so")

    def setUp(self):
        self.started = []  # numbers of processes
        self.registry = tempfile.mkdtemp(prefix="ddpsock-test-")
        os.chmod(self.registry, 0o1777)
        self.addCleanup(shutil.rmtree, self.registry)

    # How an end is started.

    def start(self, policy, arguments, *, outside=(), inside=(), env=None, program=None, changes=(), options=(), **popen):
        """`outside` stands before ddprun, `inside` behind it. A policy of None: without ddprun."""
        loading = () if policy is None else (DDPRUN, "--" + policy, "--engine", ENGINE, *options, "--")
        environment = exchange.clean_environment(**{"DDPSOCK_REGISTRY_DIR": self.registry, **(env or {})})
        program = program or [self.program]
        end = exchange.End([*outside, *loading, *inside, *program, *arguments, *changes], env=environment, **popen)
        self.started.append(end.process.pid)
        return end

    def play(self, side, policy, **how):
        """The outcomes of the ends, the one that starts so first."""
        others = {"pass_fds": how["pass_fds"]} if "pass_fds" in how else {}
        if side in ("both", "pair"):
            return [self.start(policy, [side], **how).outcome()]
        hostile = lambda arguments: self.start(policy, arguments, **how)
        usual = lambda arguments: self.start(policy, arguments, **others)
        outcomes = exchange.exchange(*((hostile, usual) if side == "server" else (usual, hostile)))
        return outcomes if side == "server" else outcomes[::-1]

    def check(self, engines=None, *, sides=SIDES, policies=POLICIES, refused=(), **how):
        """Plays it natively, then under each policy. `engines`: those that may serve, here the one asked for. `refused`: with
        what errno a connection may fail that is required."""
        engines = engines or {ENGINE}
        for side in sides:
            native = self.play(side, None, **how)
            if not all(outcome and outcome.is_ok for outcome in native):
                self.skipTest(f"natively: {native}")
            for policy in policies:
                with self.subTest(side=side, policy=policy):
                    outcomes = self.play(side, policy, **how)
                    is_alive = outcomes[0] is not None and outcomes[0].status in (0, 1, None)  # a server may wait for another client
                    is_refused = policy == "require" and refused and is_alive and any(
                        outcome and outcome.failure and outcome.failure[1] in refused for outcome in outcomes)
                    if is_refused:
                        continue
                    for outcome in outcomes:
                        self.assertTrue(outcome and outcome.is_ok, outcomes)
                        self.assertLessEqual(outcome.engines, engines, outcomes)

    def need_tool(self, name, package):
        path = exchange.find(name)
        if not path:
            self.skipTest(f"{name} is not installed (package {package})")
        return path

    def need_library(self, name, package):
        path = find_library(name)
        if not path:
            self.skipTest(f"{name} is not installed (package {package})")
        return path

    def compile(self, name, *command):
        path = os.path.join(self.folder, name)
        run = subprocess.run([*command, "-o", path], capture_output=True, text=True, cwd=self.folder)
        if run.returncode != 0:
            self.skipTest(f"{command[0]}: {run.stderr[-300:]}")
        return path

    def compile_exchange(self, name, compiler, *flags):
        return self.compile(name, self.need_tool(compiler, compiler), "-g", "-O1", "-pthread", *flags, SOURCE)

    # Nothing unusual.

    def test_as_usual(self):
        self.check(sides=(*SIDES, "pair"))

    # Beside other libraries in LD_PRELOAD.

    def check_beside(self, library, env=None, **how):
        for order in "before", "behind":
            with self.subTest(order=order):
                if order == "before":
                    self.check(env={"LD_PRELOAD": library, **(env or {})}, **how)
                else:
                    # ddprun leaves alone what is there already.
                    self.check(env={"LD_PRELOAD": f"{self.library}:{library}", **(env or {})}, **how)

    def test_jemalloc(self):
        self.check_beside(self.need_library("libjemalloc.so.2", "libjemalloc2"))

    def test_tcmalloc(self):
        self.check_beside(self.need_library("libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"))

    def test_eatmydata(self):
        self.check_beside(self.need_library("libeatmydata.so", "libeatmydata1"))

    def remove_files_of_faketime(self):
        """It makes them in the first program of a session, and forgets them where that executes another or is killed."""
        for pid in self.started:
            for name in f"faketime_shm_{pid}", f"sem.faketime_sem_{pid}":
                pathlib.Path("/dev/shm", name).unlink(missing_ok=True)

    def test_faketime(self):
        self.addCleanup(self.remove_files_of_faketime)
        library = self.need_library("faketime/libfaketimeMT.so.1", "libfaketime")
        for when in ("+300d", "-20y x2", "@2030-01-01 00:00:00 x0.1") if IS_WHOLE else ("-20y x2",):
            with self.subTest(when=when):
                self.check_beside(library, env={"FAKETIME": when})

    # As fakeroot's: it asks its own server inside the program's calls, with a lock that its functions wait for.
    LOCKING = r"""
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <netinet/in.h>
        #include <stdlib.h>
        #include <sys/socket.h>
        #include <sys/stat.h>
        #include <unistd.h>
        static _Thread_local int is_locked;
        static void lock(void) { if (is_locked) abort(); }
        #define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
        #define TAKES_LOCK(type, name, parameters, ...) type name parameters { lock(); return NEXT(name)(__VA_ARGS__); }
        TAKES_LOCK(int, fstat, (int fd, struct stat* s), fd, s)
        TAKES_LOCK(int, stat, (const char* path, struct stat* s), path, s)
        TAKES_LOCK(int, lstat, (const char* path, struct stat* s), path, s)
        TAKES_LOCK(int, fstat64, (int fd, struct stat64* s), fd, s)
        TAKES_LOCK(int, stat64, (const char* path, struct stat64* s), path, s)
        TAKES_LOCK(int, lstat64, (const char* path, struct stat64* s), path, s)
        TAKES_LOCK(int, fchmod, (int fd, mode_t mode), fd, mode)
        TAKES_LOCK(int, close, (int fd), fd)
        TAKES_LOCK(int, dup2, (int from, int to), from, to)
        TAKES_LOCK(uid_t, geteuid, (void))
        TAKES_LOCK(gid_t, getegid, (void))
        TAKES_LOCK(int, getresuid, (uid_t* r, uid_t* e, uid_t* s), r, e, s)
        TAKES_LOCK(int, getresgid, (gid_t* r, gid_t* e, gid_t* s), r, e, s)
        TAKES_LOCK(pid_t, fork, (void))
        int listen(int program, int backlog) {
          if (is_locked) return NEXT(listen)(program, backlog);
          struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
          socklen_t length = sizeof at;
          int (*const listen_as_programs_do)(int, int) = (__typeof__(&listen))dlsym(RTLD_DEFAULT, "listen");
          is_locked = 1;
          const int server = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
          char byte = 0;
          if (bind(server, (struct sockaddr*)&at, sizeof at) != 0 || listen_as_programs_do(server, 1) != 0 ||
              getsockname(server, (struct sockaddr*)&at, &length) != 0 || connect(client, (struct sockaddr*)&at, sizeof at) != 0)
            abort();
          const int accepted = accept(server, 0, 0);
          if (send(client, "x", 1, 0) != 1 || recv(accepted, &byte, 1, 0) != 1 || byte != 'x') abort();
          is_locked = 0;
          close(client);
          close(accepted);
          close(server);
          return NEXT(listen)(program, backlog);
        }
    """

    def test_library_that_connects_under_its_lock(self):
        with open(os.path.join(self.folder, "locking.c"), "w", encoding="ascii") as file:
            file.write(self.LOCKING)
        self.check_beside(self.compile("liblocking.so", "gcc", "-shared", "-fPIC", "-O1", "locking.c"))

    def test_segfault_library(self):
        self.check_beside(self.need_library("libSegFault.so", "glibc-tools"), env={"SEGFAULT_SIGNALS": "all"})

    def test_two_copies(self):
        copy = shutil.copy(self.library, os.path.join(self.folder, "libddpsock.so"))
        self.check(env={"LD_PRELOAD": copy})

    def test_bound_at_start(self):
        self.check(env={"LD_BIND_NOW": "1"})

    AUDITOR = """
        #include <link.h>
        #include <stdint.h>
        unsigned la_version(unsigned version) { return version; }
        unsigned la_objopen(struct link_map* map, Lmid_t id, uintptr_t* cookie) { return LA_FLG_BINDTO | LA_FLG_BINDFROM; }
        uintptr_t la_symbind64(Elf64_Sym* symbol, unsigned n, uintptr_t* from, uintptr_t* to, unsigned* flags,
                               const char* name) { return symbol->st_value; }
        Elf64_Addr la_x86_64_gnu_pltenter(Elf64_Sym* symbol, unsigned n, uintptr_t* from, uintptr_t* to, La_x86_64_regs* regs,
                                          unsigned* flags, const char* name, long* size) { return symbol->st_value; }
    """

    def test_auditor(self):
        source = os.path.join(self.folder, "auditor.c")
        with open(source, "w", encoding="ascii") as file:
            file.write("#define _GNU_SOURCE\n" + self.AUDITOR)
        library = self.compile("auditor.so", "gcc", "-shared", "-fPIC", source)
        self.check(env={"LD_AUDIT": library})

    # Loaded otherwise, or not.

    def test_through_the_loader(self):
        self.check(program=[LOADER, self.program], sides=("both",))
        self.check(program=[LOADER, "--library-path", "/lib/x86_64-linux-gnu", "--argv0", "another", self.program],
                   sides=("both",))

    def test_preloaded_by_the_loader(self):
        rules = "DDPSOCK_RULES=ddp1;d,prefer,-"
        end = exchange.End(["env", rules, "DDPSOCK_ENGINE=" + ENGINE, LOADER, "--preload", self.library, self.program, "both"],
                           env=exchange.clean_environment(DDPSOCK_REGISTRY_DIR=self.registry))
        outcome = end.outcome()
        self.assertTrue(outcome.is_ok and outcome.engines == {ENGINE}, outcome)

    BY_ENVIRONMENT = {"DDPSOCK_RULES": "ddp1;d,prefer,-"}

    def check_by_environment(self, **how):
        env = {**self.BY_ENVIRONMENT, "DDPSOCK_ENGINE": ENGINE}
        # First as natively: without rules.
        self.check(PLAIN, policies=(None,), **how)
        for side in (*SIDES, "pair"):
            with self.subTest(side=side):
                hostile = lambda arguments: self.start(None, arguments, env=env, **how)
                usual = lambda arguments: self.start("prefer", arguments)
                if side in ("both", "pair"):
                    outcomes = [hostile([side]).outcome()]
                else:
                    outcomes = exchange.exchange(*((hostile, usual) if side == "server" else (usual, hostile)))
                for outcome in outcomes:
                    self.assertTrue(outcome and outcome.is_ok and outcome.engines == {ENGINE}, outcomes)

    def test_linked(self):
        os.symlink(self.library, os.path.join(self.folder, "libddpsock.so.0"))
        self.addCleanup(os.unlink, os.path.join(self.folder, "libddpsock.so.0"))
        program = [self.compile_exchange("linked", "gcc", "-Wl,--no-as-needed", self.library, "-Wl,-rpath," + self.folder)]
        self.check_by_environment(program=program)
        # And preloaded.
        self.check(program=program)

    def preloaded_for_all(self):
        """What starts a command where /etc/ld.so.preload names the library."""
        if not IS_SUPERUSER:
            self.skipTest("needs the superuser to mount a folder")
        above = tempfile.mkdtemp(dir=self.folder)
        os.chmod(above, 0o755)
        with open(os.path.join(above, "ld.so.preload"), "w", encoding="ascii") as file:
            file.write(self.library + "\n")
        script = f'mount --make-rprivate / && mount -t overlay -o lowerdir={above}:/etc none /etc && exec "$0" "$@"'
        return ["unshare", "-m", "sh", "-c", script]

    def test_preloaded_for_all_programs(self):
        outside = self.preloaded_for_all()
        self.check_by_environment(outside=outside)
        # And by ddprun, which is under it too.
        self.check(outside=outside)
        # It is in programs with privileges as well, and those take no rules from their environment.
        self.as_nobody()
        path = self.make_program("setuid", 0o4755)
        started = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        done = self.start(None, ["both"], outside=[*outside, *started], program=[path],
                          env={**self.BY_ENVIRONMENT, "DDPSOCK_ENGINE": ENGINE}).outcome()
        self.assertTrue(done.is_ok and done.engines == PLAIN, done)

    EARLY = """
        #include <stdio.h>
        #include <sys/socket.h>
        FILE* early;
        __attribute__((constructor)) static void make(void) { early = fdopen(socket(AF_INET, SOCK_STREAM, 0), "r+"); }
    """
    TALK = """
        #include <arpa/inet.h>
        #include <stdio.h>
        #include <string.h>
        #include <sys/socket.h>
        #include <unistd.h>
        extern FILE* early;
        int main(void) {
          struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
          socklen_t length = sizeof address;
          char text[16] = "", engine[16] = "plain";
          const int listener = socket(AF_INET, SOCK_STREAM, 0);
          if (early == NULL || bind(listener, (struct sockaddr*)&address, length) != 0 || listen(listener, 1) != 0 ||
              getsockname(listener, (struct sockaddr*)&address, &length) != 0 ||
              connect(fileno(early), (struct sockaddr*)&address, length) != 0)
            return 2;
          const int server = accept(listener, NULL, NULL);
          if (fputs("ask\\n", early) < 0 || fflush(early) != 0 || recv(server, text, 4, MSG_WAITALL) != 4 ||
              strcmp(text, "ask\\n") != 0 || send(server, "answer\\n", 7, 0) != 7 ||
              fgets(text, sizeof text, early) == NULL || strcmp(text, "answer\\n") != 0)
            return 3;
          length = sizeof engine;
          getsockopt(server, 0x44445000, 2, engine, &length);
          puts(engine);
          return fclose(early) == 0 && recv(server, text, 1, 0) == 0 ? 0 : 4;
        }
    """

    def test_file_made_by_an_earlier_constructor(self):
        for name, text in ("early.c", self.EARLY), ("talk.c", self.TALK):
            with open(os.path.join(self.folder, name), "w", encoding="ascii") as file:
                file.write(text)
        library = self.compile("libearly.so", "gcc", "-shared", "-fPIC", "early.c")
        program = self.compile("talk", "gcc", "talk.c", library, "-Wl,-rpath," + self.folder)
        run = lambda *before: subprocess.run([*before, program], capture_output=True, text=True, timeout=20,
                                             env=exchange.clean_environment(DDPSOCK_REGISTRY_DIR=self.registry))
        native = run()
        self.assertEqual((native.returncode, native.stdout), (0, "plain\n"), native.stderr)
        for policy in POLICIES:
            with self.subTest(policy=policy):
                done = run(DDPRUN, "--" + policy, "--engine", ENGINE, "--")
                self.assertEqual((done.returncode, done.stdout), (0, ENGINE + "\n"), done.stderr)

    def test_opened_at_run_time(self):
        """By a program that was not preloaded: what was bound to libc stays so."""
        env = {"DDPSOCK_RULES": "ddp1;d,prefer,-", "DDPSOCK_ENGINE": ENGINE}
        for way in "dlopen", "dlopen_lazy", "dlopen_global", "dlopen_and_close", "dlmopen":
            for moment in "begin", "first":
                with self.subTest(way=way, moment=moment):
                    self.check({"plain", ENGINE}, policies=(None,), sides=("both", "pair"), env=env,
                               changes=[f"{way}={self.library}@{moment}"])

    def test_called_by_its_handle(self):
        """What it passes on are libc's functions, though none comes behind it."""
        script = "\n".join((
            "import ctypes, os, sys", "library = ctypes.CDLL(sys.argv[1], use_errno=True)",
            "assert library.system(b'exit 3') == 3 << 8", "a, b = os.pipe()", "assert library.write(b, b'abc', 3) == 3",
            "assert os.read(a, 9) == b'abc'", "assert library.socket(-1, 1, 0) == -1 and ctypes.get_errno() == 97",
            "library.popen.restype = ctypes.c_void_p", "assert library.popen(b'true', b'r')"))
        done = subprocess.run([PYTHON, "-c", script, self.library], env=exchange.clean_environment(), capture_output=True, text=True,
                              timeout=20)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_opened_where_it_is_preloaded(self):
        for way in "dlopen", "dlopen_and_close", "dlmopen":
            with self.subTest(way=way):
                self.check(changes=[f"{way}={self.library}@first"])

    def left_alone(self, program, reason):
        """It runs as without us, ddprun says why; required, it does not run."""
        native = self.start(None, ["both"], program=program).outcome()
        self.assertTrue(native.is_ok, native)
        warned = self.start("prefer", ["both"], program=program).outcome()
        self.assertTrue(warned.is_ok and warned.engines == PLAIN, warned)
        self.assertIn("not covered: " + reason, warned.errors)
        refused = self.start("require", ["both"], program=program).outcome()
        self.assertEqual(refused.status, 125, refused)
        # Towards one that is covered.
        for side in "server", "client":
            outcomes = exchange.exchange(
                lambda arguments: self.start("prefer", arguments, program=program if side == "server" else None),
                lambda arguments: self.start("prefer", arguments, program=program if side == "client" else None))
            self.assertTrue(all(outcome.is_ok and outcome.engines == PLAIN for outcome in outcomes), outcomes)

    def test_static(self):
        self.left_alone([EXCHANGE_STATIC], "it is statically linked")

    def test_musl(self):
        musl = self.compile("musl", self.need_tool("musl-gcc", "musl-tools"), "-O1", SOURCE)
        self.left_alone([musl], "it uses musl")

    def test_musl_started_by_a_shell(self):
        """That ddprun does not see."""
        musl = self.compile("musl", self.need_tool("musl-gcc", "musl-tools"), "-O1", SOURCE)
        self.check(PLAIN, sides=("both",), policies=("prefer",), program=["/bin/sh", "-c", '"$@"; exit $?', "sh", musl])

    # Under tools.

    def test_address_sanitizer(self):
        self.check_sanitizer("address")

    def test_address_sanitizer_of_a_child(self):
        asan = self.compile_exchange("asan", "gcc", "-fsanitize=address")
        self.check(sides=("both",), program=["/bin/sh", "-c", '"$@"; exit $?', "sh", asan])

    def check_sanitizer(self, name, compilers=("gcc", "clang-19")):
        for compiler in compilers if IS_WHOLE else compilers[:1]:
            with self.subTest(compiler=compiler):
                program = self.compile_exchange(f"{name}-{compiler}", compiler, f"-fsanitize={name}")
                self.check(program=[program], sides=SIDES if IS_WHOLE else ("both",))

    def test_thread_sanitizer(self):
        self.check_sanitizer("thread")

    def test_undefined_behaviour_sanitizer(self):
        self.check_sanitizer("undefined")

    def test_memory_sanitizer(self):
        self.check_sanitizer("memory", ("clang-19",))

    def test_valgrind(self):
        valgrind = self.need_tool("valgrind", "valgrind")
        self.check(inside=[valgrind, "-q", "--error-exitcode=9", "--leak-check=no"], **{"sides": ("pair", "both"), **SLOW})

    def test_debugger(self):
        gdb = self.need_tool("gdb", "gdb")
        commands = [gdb, "-nx", "-batch", "-ex", "set debuginfod enabled off", "-ex", "set startup-with-shell off",
                    "-ex", "break main", "-ex", "run", "-ex", "next", "-ex", "continue", "-return-child-result", "--args"]
        self.check(inside=commands, **{"sides": ("pair",), **SLOW})
        if not IS_WHOLE:
            return
        self.check(outside=[gdb, "-nx", "-batch", "-ex", "set debuginfod enabled off", "-ex", "set startup-with-shell off",
                            "-ex", "run", "-return-child-result", "--args"], sides=("pair",))

    def test_tracer(self):
        strace = self.need_tool("strace", "strace")
        self.check(inside=[strace, "-f", "-o", "/dev/null"], sides=("both",))

    # Under limits.

    def test_few_descriptors(self):
        self.check(preexec_fn=limits(nofile=64))

    def test_fewest_descriptors(self):
        self.check({"plain", "user", ENGINE}, preexec_fn=limits(nofile=12))

    def test_many_descriptors(self):
        """A million, or as many as this machine lets the test have; sockets on the last numbers."""
        self.check(preexec_fn=limits(nofile=self.most_descriptors(1 << 20)), changes=["top@begin"])

    def test_more_descriptors_than_are_kept(self):
        """What is put there is plain TCP."""
        most = self.most_descriptors(1 << 21)
        if most <= 1 << 20:
            self.skipTest(f"{most} at most here; done in the lab's guest")
        for side, moment in ("both", "begin"), ("server", "listening"):
            with self.subTest(moment=moment):
                self.check(PLAIN, preexec_fn=limits(nofile=most), changes=[f"top@{moment}"], policies=("prefer",), sides=(side,))

    @staticmethod
    def most_descriptors(wanted):
        with open("/proc/sys/fs/nr_open", encoding="ascii") as file:
            most = min(int(file.read()), wanted)
        try:
            resource.prlimit(os.getpid(), resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[0], most))
        except (ValueError, OSError):
            most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        return most

    MB = 1 << 20

    def test_address_space(self):
        """Of what is mapped after the limit came there may be too little for memory in common."""
        for moment in "begin", "socket", "listening", "connected", "accepted", "first":
            for room in 64 * self.MB, 8 * self.MB, 1 * self.MB, 64 << 10:
                with self.subTest(moment=moment, room=room):
                    sides = {"socket": ("client",), "connected": ("client",), "listening": ("server",),
                             "accepted": ("server",)}.get(moment, ("both",))
                    self.check({"plain", "user", ENGINE}, sides=sides, policies=("prefer",), changes=[f"as+{room}@{moment}"])

    def test_address_space_that_shrinks(self):
        self.check({"plain", "user", ENGINE}, sides=("server", "client"),
                   changes=[f"as+{300 * self.MB}@begin", f"as+{8 * self.MB}@connected", f"as+{8 * self.MB}@accepted",
                            "as+65536@first"])

    def test_address_space_before_exec(self):
        for room in 30, 60, 100, 300:
            with self.subTest(megabytes=room):
                self.check({"plain", "user", ENGINE}, sides=("both",), policies=("prefer",),
                           program=["/bin/sh", "-c", f'ulimit -v {room * 1024}; exec "$0" "$@"', self.program])

    def test_data_segment(self):
        self.check({"plain", "user", ENGINE}, changes=[f"data={4 * self.MB}@begin"], refused={errno.ENOBUFS, errno.ECONNABORTED})

    def test_small_stack(self):
        self.check(preexec_fn=limits(stack=128 << 10))

    def test_huge_stack(self):
        self.check(preexec_fn=limits(stack=resource.RLIM_INFINITY if IS_SUPERUSER else 64 << 20))

    def test_small_thread_stack(self):
        self.check(env={"EXCHANGE_STACK": "thread:16384"}, sides=("both", "pair"))

    def test_signal_stack(self):
        # SIGSTKSZ, as sysconf has it on this machine: four times what the kernel needs for itself, and at least 8 KiB.
        size = max(4 * os.sysconf("SC_MINSIGSTKSZ"), 8192)
        self.check(env={"EXCHANGE_STACK": f"handler:{size}"}, sides=("both", "pair"))

    def test_other_limits(self):
        for name, value in ("memlock", 0), ("core", 0), ("sigpending", 0), ("fsize", 0), ("fsize", 4096):
            with self.subTest(limit=name, value=value):
                self.check({ENGINE} if name != "fsize" else {"plain", "user", ENGINE}, preexec_fn=limits(**{name: value}))

    def test_no_more_processes(self):
        if not IS_SUPERUSER:
            self.skipTest("counts the processes of this user")
        self.check(preexec_fn=limits(nproc=1), user=NOBODY, group=NOBODY, extra_groups=[], sides=("pair",))

    def test_closed_standard_descriptors(self):
        self.check(changes=["closed@begin"])
        closing = ["/bin/sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-']
        self.check(program=[*closing, self.program], sides=("both",))
        self.check(outside=closing, sides=("both",), policies=("prefer", "require"))

    # Privilege.

    def make_program(self, name, mode=0o755, owner=0):
        path = shutil.copy(EXCHANGE, os.path.join(self.folder, name))
        os.chown(path, owner, owner)
        os.chmod(path, mode)
        self.addCleanup(os.unlink, path)
        return path

    def as_nobody(self):
        if not IS_SUPERUSER:
            self.skipTest("needs the superuser to make files of another user")
        return {"user": NOBODY, "group": NOBODY, "extra_groups": []}

    def check_privileged(self, path, reason):
        user = self.as_nobody()
        warned = self.start("prefer", ["both"], program=[path], **user).outcome()
        self.assertTrue(warned.is_ok and warned.engines == PLAIN, warned)
        self.assertIn("not covered: " + reason, warned.errors)
        # Started by a program with the library, and towards one.
        shell = ["/bin/sh", "-c", '"$@"; exit $?', "sh", path]
        self.check(PLAIN, program=shell, policies=("prefer",), **user)

    def test_setuid(self):
        self.as_nobody()
        self.check_privileged(self.make_program("setuid", 0o4755), "it is setuid")

    def test_file_capabilities(self):
        self.as_nobody()
        path = self.make_program("capable")
        try:
            # Version 2, effective; CAP_NET_BIND_SERVICE permitted.
            os.setxattr(path, "security.capability", struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0))
        except OSError as error:
            self.skipTest(f"file capabilities: {error}")
        self.check_privileged(path, "it has file capabilities")

    def test_user_given_up(self):
        self.as_nobody()
        for moment in "begin", "listening", "socket", "accepted", "connected", "first":
            with self.subTest(moment=moment):
                self.check({"plain", "user", ENGINE}, changes=[f"setuid={NOBODY}@{moment}"], policies=("prefer",),
                           sides=("client",) if moment in ("socket", "connected") else ("server",))

    def test_no_new_privileges(self):
        self.check(changes=["prctl=38@begin"])

    def test_no_memory_both_writable_and_executable(self):
        self.check(changes=["mdwe@begin"])

    # Where they live.

    def in_namespace(self, flags, command, prepare=""):
        unshare = self.need_tool("unshare", "util-linux")
        return [unshare, *flags, *(["sh", "-c", prepare + 'exec "$0" "$@"'] if prepare else []), *command]

    def check_namespace(self, *flags, prepare="", engines=None, **how):
        prefix = self.in_namespace(flags, [], prepare)
        self.check(engines, outside=prefix, sides=("both",), **how)

    def test_namespaces(self):
        for flags in ("-U",), ("-r",), ("-rn",), ("-rpf",), ("-rpf", "--mount-proc"), ("-rm",), ("-ri",), ("-ru",), ("-rnpfmiu", "--mount-proc"), ("-rC",):
            with self.subTest(flags=flags):
                # Processes that /proc does not know share no memory.
                engines = {"user"} if "p" in flags[0] and len(flags) == 1 else None
                self.check_namespace(*flags, prepare="ip link set lo up 2>&-; " if "n" in flags[0] else "", engines=engines)

    def test_nested_namespaces(self):
        deep = ["unshare", "-rnpf", "sh", "-c", 'ip link set lo up; exec "$0" "$@"']
        self.check({"user", ENGINE}, outside=["unshare", "-rpf", "unshare", "-rpf", *deep], sides=("both",))

    def test_ends_in_different_namespaces(self):
        for flags in ("-U",), ("-r",), ("-rpf",), ("-ri",), ("-rm",), ("-rpf", "--mount-proc"):
            for side in "server", "client":
                with self.subTest(flags=flags, side=side):
                    self.check({"plain", "user", ENGINE}, outside=["unshare", *flags], sides=(side,), policies=("prefer",))

    def test_namespaces_entered_late(self):
        CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 1 << 17, 1 << 27, 1 << 28, 1 << 29, 1 << 30
        for flags in CLONE_NEWUSER, CLONE_NEWUSER | CLONE_NEWNET, CLONE_NEWUSER | CLONE_NEWPID, CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWIPC:
            for moment in "begin", "listening", "socket", "accepted", "connected", "first":
                if flags & CLONE_NEWNET and moment in ("begin", "listening", "socket", "accepted"):
                    continue  # its next connection finds nobody
                with self.subTest(flags=hex(flags), moment=moment):
                    self.check({"plain", "user", ENGINE}, changes=[f"unshare={flags}@{moment}"], policies=("prefer",),
                               sides=("client",) if moment in ("socket", "connected") else ("server",))

    def test_no_proc(self):
        hidden = 'mount --make-rprivate / && mount -t tmpfs none /proc && exec "$0" "$@"'
        self.check({"plain", "user", ENGINE}, outside=["unshare", "-rm", "sh", "-c", hidden], sides=("both",), policies=(None,))
        for side in SIDES:
            self.check({"plain", "user", ENGINE}, inside=["unshare", "-rm", "sh", "-c", hidden], sides=(side,))

    def test_read_only_root(self):
        script = ('mount --make-rprivate / && mount -t tmpfs -o mode=1777 none /tmp/ddpsock-void 2>&-; '
                  'for m in / /tmp /dev /dev/shm /var /home /root; do mount -o remount,bind,ro $m 2>&-; done; exec "$0" "$@"')
        self.check({"plain", "user", ENGINE}, outside=["unshare", "-rm", "sh", "-c", script], sides=("both",))

    def test_shared_memory_folder(self):
        if not IS_SUPERUSER:
            self.skipTest("needs the superuser to mount a file system")
        for options, engines in (("noexec,nosuid,nodev,size=64k", {"plain", "user", ENGINE}), ("size=4k", {"plain", "user", ENGINE}),
                                 ("ro", {"plain", "user", ENGINE}), ("noexec", {ENGINE}), ("nr_inodes=1", {"plain", "user", ENGINE}),
                                 ("mode=0755", {ENGINE}), ("absent", {"plain", "user", ENGINE}), ("full", {"plain", "user", ENGINE})):
            with self.subTest(options=options):
                mount = {"absent": "mount -t tmpfs none /dev",
                         "full": "mount -t tmpfs -o size=1m none /dev/shm; head -c 2m /dev/zero >/dev/shm/file 2>&-"}.get(
                             options, f"mount -t tmpfs -o {options} none /dev/shm")
                script = f'mount --make-rprivate /; {mount}; exec "$0" "$@"'
                self.check(engines, outside=["unshare", "-m", "sh", "-c", script], sides=("both",), refused={errno.EPROTO, errno.ENOBUFS},
                           env={"DDPSOCK_REGISTRY_DIR": "/dev/shm"})

    def test_no_home_and_odd_locales(self):
        self.check(env={"HOME": "/nonexistent", "LC_ALL": "tr_TR.UTF-8", "LANG": "xx", "TMPDIR": "/nonexistent"},
                   changes=["locale@begin"])

    def test_working_directory_that_is_gone(self):
        self.check(outside=["sh", "-c", 'mkdir "$1" && cd "$1" && rmdir "$1" && shift && exec "$@"', "sh",
                            os.path.join(self.folder, "gone")], sides=("both",))

    def test_odd_personality(self):
        setarch = self.need_tool("setarch", "util-linux")
        for flag in "-R", "-L", "-S", "-X", "-Z":  # no randomisation, old layout, short inodes, executable reads, page 0
            with self.subTest(flag=flag):
                self.check(inside=[setarch, platform.machine(), flag], sides=("both",))

    # Filters of system calls.

    def calls_of_native_program(self):
        """All that it, or what starts it, makes without the library."""
        with tempfile.NamedTemporaryFile("r", dir=self.folder) as table:
            run = subprocess.run([self.need_tool("strace", "strace"), "-f", "-qq", "-o", table.name, PYTHON,
                                  os.path.join(HERE, "confine.py"), "errno:" + CONTAINER_CALLS, self.program, "both"],
                                 capture_output=True, env=exchange.clean_environment(), timeout=60)
            self.assertEqual(run.returncode, 0, run.stderr)
            return {line.split(None, 1)[1].split("(")[0] for line in table if "(" in line and "+++" not in line}

    def confined(self, kind, names=None):
        path = CONTAINER_CALLS
        if names is not None:
            path = os.path.join(self.folder, "calls")
            with open(path, "w", encoding="ascii") as file:
                file.write("\n".join(names))
        return [PYTHON, os.path.join(HERE, "confine.py"), f"{kind}:{path}"]

    def test_filter_of_a_container(self):
        self.check(outside=self.confined("errno"))
        self.check(inside=self.confined("errno"))

    def test_filter_that_kills(self):
        """What a container's filter forbids; then all that the program does not make itself."""
        self.check(inside=self.confined("kill"))
        own = self.calls_of_native_program()
        everything = confine.read_names(CONTAINER_CALLS) | own
        for name in ("memfd_create", "pidfd_open", "statx", "shmget", "madvise", "mremap", "fallocate", "process_vm_readv", "tgkill",
                     "kill", "prctl", "sched_yield", "getpid", "gettid", "geteuid", "fcntl", "ftruncate", "readlink", "getsockopt"):
            if name not in own:
                with self.subTest(killed_for=name):
                    self.check({"plain", "user", ENGINE}, inside=self.confined("kill", everything - {name}), policies=("prefer",),
                               sides=("both",))
        # What is required fails, and does not end the program.
        self.check({"plain", "user", ENGINE}, inside=self.confined("kill", own), refused={errno.EPROTO})

    def test_filter_of_a_service(self):
        """That kills for what only the superuser has use for, as systemd's @privileged: nothing is lost."""
        user = self.as_nobody() if IS_SUPERUSER else {}
        names = (confine.read_names(CONTAINER_CALLS) | self.calls_of_native_program()) - {"setfsuid"}
        self.check(inside=self.confined("kill", names), policies=("prefer",), sides=("both",), **user)

    def test_filter_of_its_own(self):
        """Which kills for what only the library calls, set at any moment."""
        for name in "shmget", "memfd_create", "statx", "getresuid":
            number = confine.numbers()[name]
            for moment in "begin", "listening", "socket", "connected", "accepted", "first":
                sides = {"begin": SIDES, "first": SIDES, "listening": ("server",), "accepted": ("server",)}.get(moment, ("client",))
                with self.subTest(killed_for=name, moment=moment):
                    self.check({"plain", "user", ENGINE}, changes=[f"kill_for={number}@{moment}"], sides=sides,
                               refused={errno.EPROTO, errno.ECONNABORTED, errno.ECONNRESET})


if __name__ == "__main__":
    DDPRUN, ENGINE, EXCHANGE, EXCHANGE_STATIC, SOURCE = sys.argv[1:6]
    del sys.argv[1:6]
    DDPRUN, EXCHANGE, EXCHANGE_STATIC, SOURCE = map(os.path.abspath, (DDPRUN, EXCHANGE, EXCHANGE_STATIC, SOURCE))
    CONTAINER_CALLS = os.path.join(HERE, "container_calls.txt")
    unittest.main()
