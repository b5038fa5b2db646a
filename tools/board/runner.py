# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs one piece of a suite in one column, in a room of its own (room.py), and says what became of each test."""

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time

import events
import room

FOLDER = pathlib.Path(__file__).resolve().parent
TAIL_LINES = 30
# The system's, whose modules Debian packages: another may stand first in the path.
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable


rooms = set()  # the processes that keep those that are open
ending = threading.Event()


@dataclasses.dataclass(frozen=True)
class Library:
    ddprun: pathlib.Path

    def loading(self, options):
        """What stands before a command."""
        return [] if options is None else [str(self.ddprun), *options, "--"]


@dataclasses.dataclass(frozen=True)
class Job:
    suite: object
    piece: str
    column: object
    sources: str  # where the suite's source package is unpacked
    over: str = ""  # a folder whose usr lies over the system's


def unshare():
    """What makes a room; the superuser of a user namespace of its own where this user is not the superuser."""
    return ["setpriv", "--pdeathsig", "KILL", "--", "unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--net",
            "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc", "--ipc", "--"]


def refused():
    """Why no room can be made here, or None."""
    tried = subprocess.run([*unshare(), "sh", "-c", "ip link set lo up && mount -t tmpfs tmpfs /run"], capture_output=True,
                           text=True, stdin=subprocess.DEVNULL)
    return None if tried.returncode == 0 else tried.stderr.strip() or f"status {tried.returncode}"


def environment(job, placement, library, folder, listed):
    """What runners are told. DDPSOCK_* of whoever started the board is not for the programs."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("DDPSOCK_") and key not in ("LD_PRELOAD", "CDPATH")}
    return kept | {
        "BOARD_SUITE": job.suite.name, "BOARD_PIECE": job.piece, "BOARD_EVENTS": str(listed), "BOARD_FOLDER": str(folder), "BOARD_SOURCES": job.sources,
        "BOARD_SERVER": json.dumps(library.loading(placement.server)),
        "BOARD_CLIENT": json.dumps(library.loading(placement.client)),
        "BOARD_CLIENT_USER": "nobody" if placement.client_is_another_user else "",
        "BOARD_OPTIONS": json.dumps(job.suite.options), "BOARD_LEAVE_OUT": json.dumps(job.suite.leave_out),
        "LC_ALL": "C.UTF-8", "HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}


def run_placement(job, placement, library, folder, log):
    """test -> (verdict, detail)."""
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    listed, specification = folder.parent / "events", folder.parent / "spec.json"
    command = [PYTHON, str(FOLDER / "runners" / f"{job.suite.runner}.py")]
    if job.suite.ends == 1:
        command = library.loading(placement.server) + command
    specification.write_text(json.dumps({
        "command": command, "events": str(listed), "folder": str(folder), "name": job.piece,
        "test_seconds": job.suite.test_seconds, "piece_seconds": job.suite.piece_seconds,
        "has_elsewhere": placement.client_is_elsewhere, "over": job.over,
        "shared_tmp": folder.is_relative_to("/tmp") or FOLDER.is_relative_to("/tmp") or library.ddprun.is_relative_to("/tmp")}))
    with open(log, "ab") as output:
        process = subprocess.Popen([*unshare(), sys.executable, str(FOLDER / "room.py"), str(specification)],
                                   stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                   env=environment(job, placement, library, folder, listed))
        rooms.add(process)
        try:
            # The room keeps the time; it has none of its own to end.
            process.wait(job.suite.piece_seconds + 60)
        except subprocess.TimeoutExpired:
            pass
        finally:
            rooms.discard(process)
            process.kill()
            process.wait()
    found, running = events.outcomes(events.read(listed))
    if running is not None:
        found[running] = (events.HANG, "the room was ended")
    if f"{job.piece}: {room.END}" not in found:
        found[f"{job.piece}: {room.END}"] = (events.CRASH, tail(log))
    return found


def end_all():
    """Ends what runs now, whatever comes of it."""
    ending.set()
    for process in list(rooms):
        process.kill()


def tail(log):
    return "\n".join(log.read_text(errors="replace").splitlines()[-TAIL_LINES:])


def merge(runs, is_native):
    """One verdict for each test of the placements of a column: the worst. Natively they have to agree."""
    merged = {}
    for test in dict.fromkeys(test for run in runs for test in run):
        seen = [run.get(test, (events.SKIP, "not run")) for run in runs]
        worst = max(seen, key=lambda outcome: events.RANK[outcome[0]])
        if is_native and len({verdict for verdict, _ in seen}) > 1:
            worst = (events.FLAKY, " and ".join(verdict for verdict, _ in seen) + (f": {worst[1]}" if worst[1] else ""))
        merged[test] = worst
    return merged


def run(job, library, work, log, is_short=False):
    """test -> (verdict, detail), and the seconds that it took. `is_short`: each placement that is like another only once."""
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    begin = time.monotonic()
    placements = list(dict.fromkeys(job.column.placements)) if is_short else job.column.placements
    runs = []
    for placement in placements:
        if ending.is_set():
            break
        shutil.rmtree(work, ignore_errors=True)
        runs.append(run_placement(job, placement, library, work / "room", log))
    shutil.rmtree(work, ignore_errors=True)
    return merge(runs, is_native=job.column.name == "native"), round(time.monotonic() - begin, 1)
