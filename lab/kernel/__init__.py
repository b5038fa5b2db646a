# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The guest's kernel, kept outside the checkout under a hash of all that goes into it."""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import time

from . import recipe

HERE = pathlib.Path(__file__).resolve().parent


class KernelError(Exception):
    """There is no kernel, or it could not be built; the message says what to do."""


def cache():
    chosen = os.environ.get("DDPSOCK_LAB_CACHE")
    if chosen:
        return pathlib.Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "ddpsock" / "lab"


def _output(*command):
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    except OSError as error:
        raise KernelError(f"{error}; ./dev lab build installs what it needs") from None
    if done.returncode != 0:
        raise KernelError(f"{' '.join(command)}: {done.stderr.strip()}; ./dev lab build installs what it needs")
    return done.stdout


def key():
    """Names the kernel that this checkout wants on this machine."""
    digest = hashlib.sha256()
    for part in (_output("dpkg-query", "-W", "-f=${Version}", recipe.PACKAGE), _output("gcc", "--version")):
        digest.update(part.encode() + b"\0")
    for name in ("config", "recipe.py", "siw_edit.py"):
        digest.update((HERE / name).read_bytes() + b"\0")
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


def build(jobs, say, make=recipe.make):
    """Builds the kernel unless it is there; returns its path. `say` is called with each step."""
    name = key()
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
        try:
            built, config = make(part, place / f"{name}.log", jobs, say)
        except recipe.RecipeError as error:
            raise KernelError(str(error)) from None
        finished = part / "finished"
        finished.mkdir()
        shutil.copy(built, finished / "bzImage")
        shutil.copy(config, finished / "config")
        finished.rename(done.parent)
        shutil.rmtree(part)
        say(f"built in {time.monotonic() - began:.0f} s: {done}")
    return done
