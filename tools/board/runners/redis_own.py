# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Redis' own tests, from its source package, against the server of the binary package. The server is started as the
server's end, Tcl as the client's."""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import events

ENDED = re.compile(r"^\[(ok|err|exception|skip|ignore)\]: (.*?)(?: \(\d+ ms\))?$")
VERDICTS = {"ok": events.PASS, "err": events.FAIL, "exception": events.FAIL, "skip": events.SKIP, "ignore": events.SKIP}
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def lay_out(folder, sources):
    """Its folders, with programs of the package where they would have been built."""
    shutil.copytree(sources / "tests", folder / "tests")
    for name in ("runtest", "redis.conf", "sentinel.conf"):
        shutil.copy(sources / name, folder / name)
    (folder / "src").mkdir()
    for name in ("redis-server", "redis-cli", "redis-benchmark", "redis-check-aof", "redis-check-rdb"):
        loading = json.loads(os.environ["BOARD_SERVER" if name == "redis-server" else "BOARD_CLIENT"])
        program = folder / "src" / name
        program.write_text("#!/bin/sh\nexec " + shlex.join([*loading, shutil.which(name)]) + ' "$@"\n')
        program.chmod(0o755)


def main():
    piece, listed = os.environ["BOARD_PIECE"], events.Events(os.environ["BOARD_EVENTS"])
    if listed.begun:
        return 1
    # Where the path of a UNIX socket is short enough.
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        folder = pathlib.Path(short) / "redis"
        lay_out(folder, pathlib.Path(os.environ["BOARD_SOURCES"]))
        return play(piece, listed, folder)


def play(piece, listed, folder):
    options = json.loads(os.environ["BOARD_OPTIONS"])
    is_drawn = piece in options.get("drawn", [])
    numbers = r"\d+" if is_drawn else r"\d{4,}"
    skipped = [word for test in options.get("skip", []) for word in ("--skiptest", test)]
    tests = subprocess.Popen([*json.loads(os.environ["BOARD_CLIENT"]), "tclsh8.6", "tests/test_helper.tcl", "--single", piece,
                              "--clients", "1", "--tags", "-needs:debug -large-memory", *skipped], cwd=folder, text=True, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace")
    listed.start(f"{piece}: whole")
    seen = {}
    for line in tests.stdout:
        print(line, end="", flush=True)
        if found := ENDED.match(COLOUR.sub("", line.rstrip())):
            name = re.sub(r"\s+in tests/\S+\.tcl$", "", found[2]).split(" in tests/")[0][:150]
            name = re.sub(numbers, "N", name)  # sizes and times that are drawn
            seen[name] = seen.get(name, 0) + 1
            # Of what is drawn how often it comes, too.
            again = f" ({seen[name]})" if seen[name] > 1 and not is_drawn else ""
            listed.end(f"{piece}: {name}{again}", VERDICTS[found[1]], found[2] if found[1] != "ok" else "")
    status = tests.wait()
    listed.end(f"{piece}: whole", events.FAIL if status else events.PASS, f"status {status}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
