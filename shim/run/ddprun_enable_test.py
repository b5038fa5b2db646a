#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`ddprun enable` and `disable` on an image of a system, with units made for it. usage: ddprun_enable_test.py DDPRUN"""

import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

DDPRUN = os.path.abspath(sys.argv.pop(1))
LIBRARY = os.path.join(os.path.dirname(DDPRUN), "libddpsock.so")
UNITS = "usr/lib/systemd/system"
OWN = "etc/systemd/system"
DROP_IN = "50-ddpsock.conf"
RULES = "Environment=\"DDPSOCK_RULES=ddp1;d,prefer,-\"\n"


class Image(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ddpsock-test-")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        (self.root / OWN).mkdir(parents=True)
        self.file(LIBRARY.lstrip("/"), "")
        (self.root / "usr/bin").mkdir(parents=True)
        shutil.copy("/bin/true", self.root / "usr/bin/server")
        (self.root / "bin").symlink_to("usr/bin")
        self.file("etc/passwd", "root:x:0:0::/:/bin/sh\nserver:x:123:124::/:/bin/sh\n")

    def file(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def unit(self, settings="", name="server.service", folder=UNITS, program="/usr/bin/server --port 7"):
        return self.file(f"{folder}/{name}", f"[Unit]\nDescription=x\nLD_PRELOAD=no\n[Service]\nExecStart={program}\n{settings}")

    def drop_in(self, unit="server.service"):
        return self.root / OWN / f"{unit}.d" / DROP_IN

    def run_it(self, *arguments):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("DDPSOCK_", "LD_"))}
        return subprocess.run([DDPRUN, *arguments, "--root", str(self.root)], env=env, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=60)

    def enabled(self, *arguments, unit="server.service"):
        done = self.run_it("enable", *(arguments or ("server",)))
        self.assertEqual(done.returncode, 0, done.stderr)
        return "".join(line for line in self.drop_in(unit).read_text().splitlines(True) if not line.startswith("#"))

    def refused(self, reason, *arguments, unit="server.service"):
        before = self.drop_in(unit).exists()
        done = self.run_it("enable", *(arguments or ("server",)))
        self.assertEqual(done.returncode, 125, done.stdout)
        self.assertIn(reason, done.stderr)
        self.assertEqual(self.drop_in(unit).exists(), before)

    def allowed(self, *arguments):
        """What is to be known, of a unit that can be enabled."""
        done = self.run_it("enable", *(arguments or ("server",)))
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stderr


class Enable(Image):
    def test_writes_what_is_needed_and_nothing_else(self):
        unit = self.unit()
        before = unit.read_text()
        self.assertEqual(self.enabled(), f"[Service]\nEnvironment=\"LD_PRELOAD={LIBRARY}\"\n{RULES}")
        self.assertEqual(unit.read_text(), before)
        self.assertEqual(stat.S_IMODE(self.drop_in().stat().st_mode), 0o644)
        self.assertEqual([p.name for p in self.drop_in().parent.iterdir()], [DROP_IN])

    def test_twice_is_once(self):
        self.unit()
        self.enabled()
        first = self.drop_in().stat()
        done = self.run_it("enable", "server.service")
        self.assertEqual((done.returncode, "is as it has to be" in done.stdout), (0, True), done.stdout)
        self.assertEqual(self.drop_in().stat().st_ino, first.st_ino)
        self.assertIn("require", self.enabled("server", "--require", "--engine", "user"))
        self.assertIn('Environment="DDPSOCK_ENGINE=user"', self.drop_in().read_text())

    def test_disable_leaves_nothing(self):
        self.unit()
        before = sorted(self.root.rglob("*"))
        self.enabled()
        done = self.run_it("disable", "server")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(self.root.rglob("*")), before)
        self.assertIn("is not enabled", self.run_it("disable", "server").stdout)

    def test_disable_works_when_the_unit_is_gone(self):
        unit = self.unit()
        self.enabled()
        unit.unlink()
        self.assertEqual(self.run_it("disable", "server").returncode, 0)
        self.assertFalse(self.drop_in().exists())

    def test_drop_ins_of_others_stay(self):
        self.unit()
        other = self.file(f"{OWN}/server.service.d/10-other.conf", "[Service]\nNice=5\n")
        self.enabled()
        self.assertEqual(self.run_it("disable", "server").returncode, 0)
        self.assertEqual(list(other.parent.iterdir()), [other])

    def test_an_edited_drop_in_is_left_alone(self):
        self.unit()
        self.enabled()
        with self.drop_in().open("a") as f:
            f.write("Nice=5\n")
        text = self.drop_in().read_text()
        for command in "enable", "disable":
            done = self.run_it(command, "server")
            self.assertEqual(done.returncode, 125, command)
            self.assertIn("not as ddprun wrote it", done.stderr)
            self.assertEqual(self.drop_in().read_text(), text)

    def test_somebody_elses_file_of_that_name_is_left_alone(self):
        self.unit()
        self.drop_in().parent.mkdir()
        self.drop_in().symlink_to("/nowhere")
        self.refused("not as ddprun wrote it")
        self.assertTrue(self.drop_in().is_symlink())

    def test_links_do_not_lead_out_of_the_image(self):
        self.unit()
        with tempfile.TemporaryDirectory(prefix="ddpsock-test-") as outside:
            (self.root / OWN / "server.service.d").symlink_to(outside)
            self.assertEqual(self.run_it("enable", "server").returncode, 125)
            self.assertEqual(os.listdir(outside), [])

    def test_profile(self):
        self.unit(program="/usr/bin/redis-server")
        shutil.copy("/bin/true", self.root / "usr/bin/redis-server")
        self.assertIn("ddprun profiles redis", self.run_it("enable", "server").stdout)
        self.assertIn("redis-*,*,*,*,prefer,-;", self.enabled("server", "--profile", "redis"))
        self.refused("no profile 'none'", "server", "--profile", "none")


class Preload(Image):
    def line(self):
        return self.enabled().splitlines()[1]

    def test_what_the_unit_preloads_stays_in_front(self):
        self.unit('Environment="A=b c" LD_PRELOAD=/usr/lib/first.so\nEnvironment=B=1\n')
        self.assertEqual(self.line(), f'Environment="LD_PRELOAD=/usr/lib/first.so:{LIBRARY}"')

    def test_the_last_one_counts_and_an_empty_one_resets(self):
        self.unit("Environment=LD_PRELOAD=/a.so\nEnvironment=\nEnvironment='LD_PRELOAD=/b.so /c.so'\n")
        self.assertEqual(self.line(), f'Environment="LD_PRELOAD=/b.so /c.so:{LIBRARY}"')

    def test_drop_ins_in_front_are_kept_with_their_specifiers(self):
        self.unit("Environment=LD_PRELOAD=/a.so\n")
        self.file(f"{UNITS}/server.service.d/20-b.conf", "[Service]\nEnvironment = \\\n# why\n  LD_PRELOAD=%h/b.so\n")
        self.assertEqual(self.line(), f'Environment="LD_PRELOAD=%h/b.so:{LIBRARY}"')

    def test_a_drop_in_of_the_same_name_in_etc_hides_that_of_the_package(self):
        self.unit()
        self.file(f"{UNITS}/server.service.d/20-b.conf", "[Service]\nEnvironment=LD_PRELOAD=/b.so\n")
        self.file(f"{OWN}/server.service.d/20-b.conf", "[Service]\nEnvironment=LD_PRELOAD=/c.so\n")
        self.assertEqual(self.line(), f'Environment="LD_PRELOAD=/c.so:{LIBRARY}"')

    def test_the_library_is_named_once(self):
        self.unit("Environment=LD_PRELOAD=/opt/libddpsock.so:/a.so\n")
        self.assertEqual(self.line(), 'Environment="LD_PRELOAD=/opt/libddpsock.so:/a.so"')

    def test_what_comes_behind_and_would_win_is_named(self):
        self.unit()
        for text in "Environment=LD_PRELOAD=/x.so", "Environment=":
            self.file(f"{OWN}/server.service.d/override.conf", f"[Service]\n{text}\n")
            self.refused("override.conf")

    def test_what_goes_before_environment_is_named(self):
        self.unit("EnvironmentFile=-/etc/default/server\n")
        self.enabled()
        self.file("etc/default/server", "# LD_PRELOAD=/a.so\nA=1\n  LD_PRELOAD=/a.so\n")
        self.refused("/etc/default/server sets LD_PRELOAD")
        self.unit("UnsetEnvironment=LD_PRELOAD\n")
        self.refused("unsets LD_PRELOAD")


class Units(Image):
    def test_a_unit_that_does_not_exist(self):
        self.refused("there is no unit none.service", "none", unit="none.service")
        self.assertEqual(self.run_it("disable", "none").returncode, 125)

    def test_names_that_are_none(self):
        for name in "server.socket", "../server", "a b", "", ".service", "@x", "x/y":
            done = self.run_it("enable", name)
            self.assertEqual(done.returncode, 125, name)
            self.assertIn("ddprun: ", done.stderr, name)

    def test_templates_and_instances(self):
        self.unit(name="server@.service")
        self.enabled("server@", unit="server@.service")
        self.enabled("server@one.service", unit="server@one.service")
        self.assertEqual(self.run_it("disable", "server@one").returncode, 0)
        self.assertFalse(self.drop_in("server@one.service").parent.exists())
        self.assertTrue(self.drop_in("server@.service").exists())

    def test_an_instance_is_judged_by_its_templates_drop_ins(self):
        self.unit(name="server@.service")
        self.file(f"{OWN}/server@.service.d/a.conf", "[Service]\nEnvironment=LD_PRELOAD=/a.so\n")
        self.refused("a.conf", "server@one", unit="server@one.service")

    def test_an_alias_is_the_unit_it_names(self):
        self.unit()
        (self.root / OWN / "other.service").symlink_to(f"/{UNITS}/server.service")
        self.enabled("other")
        self.assertFalse(self.drop_in("other.service").exists())
        self.assertEqual(self.run_it("disable", "other").returncode, 0)
        self.assertFalse(self.drop_in().exists())

    def test_a_masked_unit(self):
        self.unit()
        (self.root / OWN / "server.service").symlink_to("/dev/null")
        self.file("dev/null", "")
        self.refused("is masked")

    def test_etc_goes_before_usr(self):
        self.unit(program="/usr/bin/none")
        self.unit(folder=OWN)
        self.enabled()

    def test_drop_ins_of_a_prefix_and_of_all_services_count(self):
        self.unit(name="server-a-b.service")
        for folder in "server-.service.d", "service.d":
            drop_in = self.file(f"{OWN}/{folder}/60-x.conf", "[Service]\nEnvironment=LD_PRELOAD=/x.so\n")
            self.refused("60-x.conf", "server-a-b", unit="server-a-b.service")
            drop_in.unlink()
        self.enabled("server-a-b", unit="server-a-b.service")


class Programs(Image):
    def test_that_are_missing_or_not_covered(self):
        self.unit(program="/usr/bin/none")
        self.refused("/usr/bin/none: not covered: No such file")
        self.file("usr/bin/text", "x").chmod(0o755)
        self.unit(program="/usr/bin/text")
        self.refused("neither an ELF file nor a script")

    def test_marks_in_front_and_search_in_the_image(self):
        self.unit(program="-@!/bin/server server --x")
        self.enabled()
        self.unit(program="server")
        self.enabled()

    def test_interpreters_are_the_images(self):
        self.file("usr/bin/script", "#!/bin/interpreter\n").chmod(0o755)
        self.unit(program="/usr/bin/script")
        self.refused("/bin/interpreter cannot be read")
        shutil.copy("/bin/true", self.root / "usr/bin/interpreter")
        self.enabled()

    def test_every_line_counts(self):
        self.unit(settings="ExecStart=/usr/bin/none\n")
        self.refused("/usr/bin/none")
        self.unit(settings="ExecStart=\nExecStart=/usr/bin/server\n", program="/usr/bin/none")
        self.enabled()

    def test_setuid_is_judged_by_the_services_user(self):
        program = self.root / "usr/bin/server"
        program.chmod(0o4755)
        if program.stat().st_uid != 0:
            self.skipTest("needs root to make a setuid file of root's")
        self.unit()
        self.enabled()
        self.unit("User=server\n")
        self.refused("it is setuid")

    def test_that_forget_their_environment(self):
        shutil.copy("/bin/true", self.root / "usr/bin/pg_ctlcluster")
        self.unit(program="-/usr/bin/pg_ctlcluster %i start")
        self.refused("/etc/postgresql/VERSION/CLUSTER/environment")

    def test_rules_that_say_off(self):
        shutil.copy("/bin/true", self.root / "usr/bin/sshd")
        self.unit(program="/usr/bin/sshd -D")
        self.refused("says plain TCP for all that /usr/bin/sshd does", "server", "--profile", "openssh")
        self.refused("--off says plain TCP", "server", "--off")

    def test_an_image_without_the_library(self):
        self.unit()
        (self.root / LIBRARY.lstrip("/")).unlink()
        self.refused("the library is neither")


class Sandbox(Image):
    def refused_with(self, settings, reason):
        with self.subTest(settings=settings):
            self.unit(settings)
            self.refused(reason)

    def test_files_out_of_reach(self):
        folder = os.path.dirname(LIBRARY)
        for settings in ("TemporaryFileSystem=/dev/shm:rw", "InaccessiblePaths=-/dev", "RootDirectory=/srv/x", "RootImage=/x"):
            self.refused_with(settings, "hides /dev/shm")
        self.refused_with("ReadOnlyPaths=/dev", "keeps it from writing to /dev/shm")
        self.refused_with(f"InaccessiblePaths={folder}", f"hides {LIBRARY}")
        self.refused_with("NoExecPaths=/", "keeps it from loading")
        for settings in (f"NoExecPaths=/\nExecPaths={folder}", "ReadOnlyPaths=/\nReadWritePaths=/dev/shm",
                         f"RootDirectory=/srv/x\nBindPaths=/dev/shm\nBindReadOnlyPaths={folder}"):
            with self.subTest(settings=settings):
                self.unit(settings)
                self.allowed()

    def test_what_does_no_harm(self):
        self.unit("PrivateTmp=no\nPrivateIPC=true\nPrivateDevices=true\nProtectSystem=strict\nMemoryDenyWriteExecute=true\n"
                  "NoNewPrivileges=true\nProtectProc=invisible\nLockPersonality=true\nSystemCallArchitectures=native\n"
                  "LimitNOFILE=65535\nLimitFSIZE=infinity\n")
        self.assertEqual(self.allowed(), "")

    def test_families(self):
        lacking = "RestrictAddressFamilies=AF_INET AF_INET6"
        self.refused_with(lacking, "lacks AF_NETLINK")
        self.refused_with("RestrictAddressFamilies=~AF_PACKET AF_NETLINK", "lacks AF_NETLINK")
        for settings in ("RestrictAddressFamilies=~AF_PACKET", lacking + " AF_NETLINK", lacking + "\nRestrictAddressFamilies="):
            with self.subTest(settings=settings):
                self.unit(settings)
                self.allowed()
        self.unit(lacking)
        self.assertIn("\nRestrictAddressFamilies=AF_NETLINK\n", self.enabled("server", "--netlink"))

    def test_system_calls_by_name(self):
        self.refused_with("SystemCallFilter=~memfd_create", "memfd_create")
        self.refused_with("SystemCallFilter=~shmget:EPERM ptrace", "has to allow shmget")
        self.unit("SystemCallFilter=~ptrace reboot")
        self.allowed()

    def test_what_systemd_analyze_has_to_say_beside_its_answer(self):
        """It warns where it cannot ask the kernel for its system calls."""
        folder = self.root / "programs"
        folder.mkdir()
        program = folder / "systemd-analyze"
        program.write_text("#!/bin/sh\necho '# a warning' >&2\nprintf '@default\\n    brk\\n@all\\n    @default\\n'\n")
        program.chmod(0o755)
        self.unit("SystemCallFilter=~@all\n")
        with mock.patch.dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}"):
            self.assertEqual(self.allowed(), "")

    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd's sets are known to systemd-analyze only")
    def test_system_calls_by_set(self):
        usual = "SystemCallFilter=@system-service\nSystemCallFilter=~@privileged @resources\n"
        self.unit(usual + "User=server\n")
        self.assertEqual(self.allowed(), "")
        self.refused_with(usual, "has to allow setfsuid")
        self.refused_with("SystemCallFilter=@basic-io", "has to allow sendto")
        self.refused_with("SystemCallFilter=@system-service\nSystemCallFilter=~@ipc", "shmget")
        self.unit("SystemCallFilter=@system-service\nSystemCallFilter=~@ipc\nSystemCallFilter=@ipc")
        self.allowed()

    def test_limits_and_namespaces(self):
        self.refused_with("LimitFSIZE=100K", "below the 262144 bytes")
        for settings, note in (("LimitAS=2G", "no shared memory"), ("PrivateUsers=yes", "PrivateUsers="),
                               ("DynamicUser=yes", "DynamicUser="), ("PrivateNetwork=1", "network namespace of its own"),
                               ("AppArmorProfile=x", "AppArmorProfile=x")):
            with self.subTest(settings=settings):
                self.unit(settings)
                self.assertIn(note, self.allowed())


if __name__ == "__main__":
    unittest.main()
