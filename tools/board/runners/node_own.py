# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Node's own tests, from its source package: each file of test/parallel is a test, both ends are in it. Loaded as the
column says; a file whose comment has flags is run with them. As where Debian builds it, OpenSSL is told by the source package's
own file that short keys will do, and localhost is ::1 too, whatever this machine says of it."""

import fnmatch
import json
import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import events

FLAGS = re.compile(r"^// Flags: (.*)$", re.MULTILINE)
SECONDS = 100
HOSTS = "127.0.0.1 localhost\n::1 localhost\n"
OPENSSL = "deps/openssl/openssl/apps/openssl.cnf"


def name_localhost(folder):
    """In this room alone."""
    (folder / "hosts").write_text(HOSTS)
    subprocess.run(["mount", "--bind", str(folder / "hosts"), "/etc/hosts"], check=True)


def run(path, folder, sources):
    """The verdict of one file."""
    flags = found[1].split() if (found := FLAGS.search(path.read_text(errors="replace"))) else []
    environment = os.environ | {"NODE_TEST_DIR": str(folder), "TEST_THREAD_ID": "0", "TEST_SERIAL_ID": "0",
                                "OPENSSL_CONF": str(sources / OPENSSL)}
    process = subprocess.Popen(["node", *flags, str(path)], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors="replace", env=environment, start_new_session=True)
    try:
        said = process.communicate(timeout=SECONDS)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        return events.HANG, process.communicate()[0]
    if process.returncode < 0:
        return events.CRASH, f"signal {-process.returncode}: {said}"
    if process.returncode != 0:
        return events.FAIL, said
    return (events.SKIP, said) if re.search(r"^1\.\.0 # Skipped", said, re.MULTILINE) else (events.PASS, "")


def main():
    listed, piece = events.Events(os.environ["BOARD_EVENTS"]), os.environ["BOARD_PIECE"]
    folder, sources = pathlib.Path(os.environ["BOARD_FOLDER"]), pathlib.Path(os.environ["BOARD_SOURCES"])
    left_out = json.loads(os.environ["BOARD_LEAVE_OUT"])
    name_localhost(folder)
    for path in sorted((sources / "test" / "parallel").glob(f"test-{piece}-*.js")):
        test = path.stem
        if test in listed.begun or any(fnmatch.fnmatch(test, pattern) for pattern in left_out):
            continue
        listed.start(test)
        verdict, detail = run(path, folder, sources)
        listed.end(test, verdict, detail)
        if verdict != events.PASS:
            print(f"--- {test}: {verdict}\n{detail[-3000:]}", flush=True)


if __name__ == "__main__":
    main()
