#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What `meson install` installs, and that programs can be built with it.

  install_test.py BUILD PREFIX LIBDIR
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

BUILD, PREFIX, LIBDIR = sys.argv[1:4]
HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = HERE / "program.c"
MAN = HERE.parent.parent / "man"
PROFILES = HERE.parent.parent / "shim" / "profiles"


def run(*command, **environment):
    done = subprocess.run([str(part) for part in command], env=os.environ | environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=60)
    if done.returncode != 0:
        raise AssertionError(f"{command}: status {done.returncode}\n{done.stdout}")
    return done.stdout


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        run("meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", cls.folder / "root")
        cls.prefix = cls.folder / "root" / PREFIX.lstrip("/")
        cls.libraries = cls.prefix / LIBDIR

    def package(self, *arguments):
        """The answer of pkg-config about the installed tree, and nothing else."""
        answer = run("pkg-config", *arguments, "ddpsock", PKG_CONFIG_PATH="", PKG_CONFIG_SYSROOT_DIR=str(
            self.folder / "root"), PKG_CONFIG_LIBDIR=str(self.libraries / "pkgconfig"))
        return answer.split()

    def build(self, *arguments, source=PROGRAM):
        program = self.folder / self.id()
        run("gcc", "-Wall", "-Wextra", "-Wpedantic", "-Werror", source, "-o", program, *self.package("--cflags"), *arguments)
        return program

    def test_commands_are_executable_and_say_their_version(self):
        version = self.package("--modversion")[0]
        for name in ("ddprun", "ddp-perf"):
            self.assertIn(version, run(self.prefix / "bin" / name, "--version"))
        self.assertIn("ddp-rping", run(self.prefix / "bin" / "ddp-rping", "-h"))

    def test_optimisation_at_link_time_is_refused(self):
        # Distributions ask for it in either way.
        for number, (option, flags) in enumerate((("-Db_lto=true", ""), ("-Db_pie=true", "-O2 -flto=auto"))):
            done = subprocess.run(["meson", "setup", self.folder / f"lto{number}", HERE.parent.parent, option],
                                  env=os.environ | {"CXXFLAGS": flags}, capture_output=True, text=True, timeout=60)
            self.assertNotEqual(done.returncode, 0, done.stdout)
            self.assertIn("cannot be optimised at link time", done.stdout + done.stderr)

    def test_every_man_page_is_there(self):
        pages = {page.name for page in MAN.glob("*.[0-9]")}
        self.assertEqual(pages - {page.name for page in (self.prefix / "share" / "man").rglob("*.[0-9]")}, set())

    def test_every_profile_is_there(self):
        profiles = {path.name: path.read_text() for path in PROFILES.glob("*.toml")}
        self.assertGreater(len(profiles), 3)
        folder = self.prefix / "share" / "ddpsock" / "profiles"
        self.assertEqual({path.name: path.read_text() for path in folder.iterdir()}, profiles)

    def test_every_call_finds_its_man_page(self):
        header = (self.prefix / "include" / "ddpsock" / "ddpsock.h").read_text()
        calls = re.findall(r"^(?:DDP_CALL|static inline) [^;{]*?\b(ddp_\w+)\(", header, re.MULTILINE)
        self.assertGreater(len(calls), 10)
        for call in calls:
            page = self.prefix / "share" / "man" / "man3" / f"{call}.3"
            self.assertTrue(page.is_file(), call)
            self.assertIn(call, page.read_text())

    def test_every_command_has_a_man_page(self):
        for command in (self.prefix / "bin").iterdir():
            self.assertTrue((MAN / f"{command.name}.1").is_file(), command.name)

    def test_nothing_of_a_build_folder_is_installed(self):
        for path in self.prefix.rglob("*"):
            if path.is_file() and path.suffix in (".pc", ".h", ".hpp", ".1", ".3", ".7"):
                self.assertNotIn(str(BUILD), path.read_text(), path)
        self.assertNotRegex(run("readelf", "-dW", self.libraries / "libddpsock.so"), "RPATH|RUNPATH")
        self.assertEqual({path.name for path in (self.prefix / "include" / "ddpsock").iterdir()},
                         {"ddpsock.h", "ddpsock.hpp"})

    def test_header_is_c11_and_cpp(self):
        for language in (["-x", "c", "-std=c11"], ["-x", "c++", "-std=c++11"]):
            run("gcc", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", *language, PROGRAM,
                *self.package("--cflags"))

    def test_layer_is_cpp20(self):
        source = self.folder / "layer.cpp"
        source.write_text("#include <ddpsock/ddpsock.hpp>\nint main() { return ddp_is_loaded() ? 0 : 1; }\n")
        run("g++", "-std=c++20", "-fno-exceptions", "-fno-rtti", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror",
            "-fsyntax-only", source, *self.package("--cflags"))

    def test_program_linked_by_pkg_config_needs_the_library(self):
        program = self.build(*self.package("--libs"))
        self.assertIn("[libddpsock.so.0]", run("readelf", "-dW", program))
        self.assertEqual(run(program, LD_LIBRARY_PATH=str(self.libraries)), "loaded taken\n")

    def test_linker_that_drops_libraries_keeps_it(self):
        # Some distributions' compilers say --as-needed. A part that is given its sockets has weak references only.
        source = self.folder / "part.c"
        source.write_text("#include <ddpsock/ddpsock.h>\nint main(void) { return ddp_is_loaded() ? 0 : 1; }\n")
        run(self.build("-Wl,--as-needed", *self.package("--libs"), source=source), LD_LIBRARY_PATH=str(self.libraries))

    def test_linked_and_preloaded_library_are_one(self):
        program = self.build(*self.package("--libs"))
        loads = run(program, LD_LIBRARY_PATH=str(self.libraries), LD_DEBUG="files",
                    LD_PRELOAD=str(self.libraries / "libddpsock.so"))
        self.assertEqual(loads.count("calling init: " + str(self.libraries)), 1, loads)
        self.assertIn("loaded taken\n", loads)

    def test_program_that_is_not_linked_does_without(self):
        program = self.build()
        self.assertEqual(run(program), "absent refused\n")
        self.assertEqual(run(program, LD_PRELOAD=str(self.libraries / "libddpsock.so")), "loaded taken\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
