# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""libuv's own tests, built from its source package: each is started by its name."""

import fcntl
import fnmatch
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import events

SECONDS = 60
SKIPPED = 7  # TEST_SKIP


def build(sources):
    """Once; later runs find it done. Without what this process is loaded with."""
    target = sources / "board-build"
    program, done = target / "uv_run_tests", target / "board-done"
    target.mkdir(exist_ok=True)
    with open(target / "board-lock", "w", encoding="ascii") as lock:  # other pieces begin at the same time
        fcntl.flock(lock, fcntl.LOCK_EX)
        if done.exists():
            return program
        plain = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD" and not key.startswith("DDPSOCK_")}
        subprocess.run(["cmake", "-S", sources, "-B", target, "-DBUILD_TESTING=ON", "-DCMAKE_BUILD_TYPE=RelWithDebInfo"], check=True, env=plain,
                       stdout=subprocess.DEVNULL)
        subprocess.run(["cmake", "--build", target, "--target", "uv_run_tests", "-j2"], check=True, env=plain, stdout=subprocess.DEVNULL)
        done.touch()
    return program


def main():
    listed, piece = events.Events(os.environ["BOARD_EVENTS"]), os.environ["BOARD_PIECE"]
    options, left_out = json.loads(os.environ["BOARD_OPTIONS"]), json.loads(os.environ["BOARD_LEAVE_OUT"])
    sources = pathlib.Path(os.environ["BOARD_SOURCES"])
    program = build(sources)
    folder = pathlib.Path(os.environ["BOARD_FOLDER"])
    if not (folder / "test").exists():
        shutil.copytree(sources / "test" / "fixtures", folder / "test" / "fixtures")
    os.environ["UV_RUN_AS_ROOT"] = "1"  # the tests ask for it
    # A test's line goes on with its helpers.
    tests = [line.split()[0] for line in subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.splitlines() if line]
    chosen = [test for test in dict.fromkeys(tests) if any(fnmatch.fnmatch(test, pattern) for pattern in options[piece])]
    for test in chosen:
        if test in listed.begun or any(fnmatch.fnmatch(test, pattern) for pattern in left_out):
            continue
        listed.start(test)
        listed.end(test, *run(program, test, folder))


def run(program, test, folder):
    try:
        done = subprocess.run([program, test], cwd=folder, capture_output=True, text=True, errors="replace", timeout=SECONDS,
                              stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired as late:
        return events.HANG, (late.stdout or b"").decode(errors="replace")
    said = done.stdout + done.stderr
    if done.returncode == SKIPPED or re.search(r"^ok \d+ - .* # SKIP", said, re.MULTILINE):
        return events.SKIP, said
    if done.returncode < 0:
        return events.CRASH, f"signal {-done.returncode}: {said}"
    if done.returncode != 0:
        print(f"--- {test}: status {done.returncode}\n{said[-3000:]}", flush=True)
        return events.FAIL, said
    return events.PASS, ""


if __name__ == "__main__":
    main()
