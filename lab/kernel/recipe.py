# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How the guest's kernel is made of Debian's source: unpack, edit siw, allnoconfig and the fragment, bzImage."""

import os
import pathlib
import shutil
import subprocess

from . import siw_edit

PACKAGE = "linux-source-6.1"
TARBALL = pathlib.Path("/usr/src") / f"{PACKAGE}.tar.xz"
CONFIG = pathlib.Path(__file__).resolve().parent / "config"
LOG_LINES = 40


class RecipeError(Exception):
    """The kernel could not be built; the message has the end of the log."""


def make(folder, log_path, jobs, say):
    """Builds in the empty `folder`; returns the paths of the image and of its configuration."""
    source, output = folder / PACKAGE, folder / "build"
    # Lets ccache, if there is one, know a source again although each build has a folder of its own.
    environment = {**os.environ, "CCACHE_BASEDIR": str(folder), "CCACHE_NOHASHDIR": "1"}
    with open(log_path, "wb") as log:
        def run(*command):
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
            if done.returncode != 0:
                tail = log_path.read_text(errors="replace").splitlines()[-LOG_LINES:]
                raise RecipeError("\n".join([f"{command[0]} ended with status {done.returncode}; end of {log_path}:",
                                             *tail]))

        say(f"unpacking {TARBALL}")
        run("tar", "-xf", str(TARBALL), "-C", str(folder))
        try:
            siw_edit.edit_source(source)
        except siw_edit.EditError as error:
            raise RecipeError(f"cannot prepare siw: {error}") from None
        compiler = "ccache gcc" if shutil.which("ccache") else "gcc"
        command = ("make", "-C", str(source), f"O={output}", "ARCH=x86_64", f"CC={compiler}", "HOSTCC=gcc",
                   "KBUILD_BUILD_USER=lab", "KBUILD_BUILD_HOST=lab", "KBUILD_BUILD_TIMESTAMP=1970-01-01")
        run(*command, f"KCONFIG_ALLCONFIG={CONFIG}", "allnoconfig")
        lost = lost_lines(CONFIG.read_text(encoding="utf-8"), (output / ".config").read_text(encoding="utf-8"))
        if lost:
            raise RecipeError(f"the kernel's configuration does not keep: {', '.join(lost)}")
        say(f"compiling with {jobs} jobs (some minutes); log: {log_path}")
        run(*command, f"-j{jobs}", "bzImage")
    return output / "arch" / "x86" / "boot" / "bzImage", output / ".config"


def lost_lines(wanted, got):
    """The options of `wanted` that `got` does not have so: Kconfig drops silently what a missing dependency forbids."""
    lines = set(got.splitlines())
    on = {line.split("=")[0] for line in lines if line.startswith("CONFIG_")}
    lost = []
    for line in wanted.splitlines():
        words = line.split()
        if line.startswith("CONFIG_") and line not in lines:
            lost.append(line)
        elif line.endswith(" is not set") and words[1] in on:
            lost.append(line)
    return lost
