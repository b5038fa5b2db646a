# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Where a run's results go, and which folders of the host a guest does not see by itself."""

import contextlib
import fcntl
import pathlib
import re
import shutil

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "build" / "lab"
# Folders of the host that the guest has its own of; what is needed below them is shared one by one.
HIDDEN = [pathlib.Path(p) for p in ("/tmp", "/run", "/var/tmp", "/dev/shm")]


class ResultsError(Exception):
    """The results cannot go where they should."""


def hidden(paths):
    """Those of `paths` that lie where the guest has folders of its own."""
    wanted = {pathlib.Path(p).resolve() for p in paths}
    # Parents first: they are mounted in this order.
    return sorted(p for p in wanted if any(p != h and p.is_relative_to(h) for h in HIDDEN))


def can_be_seen(folder):
    """Whether a guest can see it: of HIDDEN only what lies below can be shared."""
    return folder.resolve() not in HIDDEN


_claims = {}


def claim(name):
    """A fresh folder build/lab/NAME that is ours until this process ends."""
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise ResultsError(f"'{name}' is no name for a folder of results")
    RESULTS.mkdir(parents=True, exist_ok=True)
    if name not in _claims:
        lock = open(RESULTS / f".{name}.lock", "w", encoding="ascii")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise ResultsError(f"another run uses build/lab/{name}") from None
        _claims[name] = lock
    folder = RESULTS / name
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)
    folder.mkdir()
    return folder
