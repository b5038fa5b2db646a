# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The guest's kernel: built from Debian's source once, kept outside the checkout under a hash of all that went in."""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import time

import siw_edit

HERE = pathlib.Path(__file__).resolve().parent
CONFIG = HERE / "kernel" / "config"
PACKAGE = "linux-source-6.1"
TARBALL = pathlib.Path("/usr/src") / f"{PACKAGE}.tar.xz"
LOG_LINES = 40


class KernelError(Exception):
    """There is no kernel, or it could not be built; the message says what to do."""


def cache():
    chosen = os.environ.get("DDPSOCK_LAB_CACHE")
    if chosen:
        return pathlib.Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "ddpsock" / "lab"


def _output(*command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise KernelError(f"{' '.join(command)}: {done.stderr.strip()}; ./dev lab build installs what it needs")
    return done.stdout


def key():
    """Names the kernel that this checkout wants on this machine."""
    digest = hashlib.sha256()
    for part in (_output("dpkg-query", "-W", "-f=${Version}", PACKAGE), _output("gcc", "--version")):
        digest.update(part.encode() + b"\0")
    for path in (CONFIG, HERE / "kernel.py", HERE / "siw_edit.py"):
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()[:24]


def image():
    """The path of the kernel to boot. DDPSOCK_LAB_KERNEL names another one."""
    chosen = os.environ.get("DDPSOCK_LAB_KERNEL")
    path = pathlib.Path(chosen) if chosen else cache() / key() / "bzImage"
    if not path.is_file():
        raise KernelError(f"there is no guest kernel at {path}; run ./dev lab build")
    return path


@contextlib.contextmanager
def _locked(path, say):
    with open(path, "w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another build of this kernel is under way; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build(jobs, say):
    """Builds the kernel unless it is there; returns its path. `say` is called with each step."""
    name = key()
    if not TARBALL.is_file():
        raise KernelError(f"{TARBALL} is missing; install {PACKAGE}")
    place = cache()
    place.mkdir(parents=True, exist_ok=True)
    done = place / name / "bzImage"
    with _locked(place / f"{name}.lock", say):
        if done.is_file():
            return done
        began = time.monotonic()
        part = place / f"{name}.part"
        # What an interrupted build left.
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        built = _build_in(part, place / f"{name}.log", jobs, say)
        finished = part / "finished"
        finished.mkdir()
        shutil.copy(built, finished / "bzImage")
        shutil.copy(part / "build" / ".config", finished / "config")
        finished.rename(done.parent)
        shutil.rmtree(part)
        say(f"built in {time.monotonic() - began:.0f} s: {done}")
    return done


def _build_in(part, log_path, jobs, say):
    source, output = part / PACKAGE, part / "build"
    with open(log_path, "wb") as log:
        def run(*command):
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            if done.returncode != 0:
                tail = log_path.read_text(errors="replace").splitlines()[-LOG_LINES:]
                raise KernelError("\n".join([f"{command[0]} ended with status {done.returncode}; end of {log_path}:",
                                             *tail]))

        say(f"unpacking {TARBALL}")
        run("tar", "-xf", str(TARBALL), "-C", str(part))
        try:
            siw_edit.edit_source(source)
        except siw_edit.EditError as error:
            raise KernelError(f"cannot prepare siw: {error}") from None
        compiler = "ccache gcc" if shutil.which("ccache") else "gcc"
        make = ("make", "-C", str(source), f"O={output}", "ARCH=x86_64", f"CC={compiler}", "HOSTCC=gcc",
                "KBUILD_BUILD_USER=lab", "KBUILD_BUILD_HOST=lab", "KBUILD_BUILD_TIMESTAMP=1970-01-01")
        run(*make, f"KCONFIG_ALLCONFIG={CONFIG}", "allnoconfig")
        check_config(CONFIG.read_text(encoding="utf-8"), (output / ".config").read_text(encoding="utf-8"))
        say(f"compiling with {jobs} jobs (some minutes); log: {log_path}")
        run(*make, f"-j{jobs}", "bzImage")
    return output / "arch" / "x86" / "boot" / "bzImage"


def check_config(wanted, got):
    """Kconfig drops silently what a missing dependency forbids."""
    lines = set(got.splitlines())
    for line in wanted.splitlines():
        option = line.removeprefix("# ").split("=")[0].split(" ")[0]
        if not option.startswith("CONFIG_"):
            continue
        is_off = line.startswith("#")
        if line not in lines and not (is_off and not any(text.startswith(f"{option}=") for text in lines)):
            raise KernelError(f"the kernel's configuration does not keep '{line}'")
