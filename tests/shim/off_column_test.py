#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the library costs calls on plain connections, in instructions of user space, counted by callgrind: of each kind of call
as many as are allowed here, of a server's requests one in a hundred. And no system call more.

off_column_test.py OFF_COLUMN_PROGRAM SOURCE DDPRUN
"""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import exchange

SKIPPED = 77  # meson's exit status for a skipped test
TIMES = 100  # off_column.cpp: kTimes
MANY, FEW = 1200, 200  # requests
MOST_OF_SERVER = 0.01

# column -> (how ddprun is called, how the program, the instructions that a call may take more than without the library)
COLUMNS = {
    "native": (None, "alone", {}),
    "off": (["--off"], "alone", {
        "": 6, "recvmsg": 40, "epoll_ctl": 45, "setsockopt": 80, "dup_and_close": 160, "socket_and_close": 25, "connect_and_close": 80}),
    "plain peer": (["--prefer"], "alone", {
        "": 6, "recvmsg": 40, "epoll_ctl": 45, "setsockopt": 80, "dup_and_close": 240, "socket_and_close": 25, "connect_and_close": 2500}),
    "beside DDPMODE": (["--prefer", "--engine", "shm"], "beside", {
        "": 12, "recvmsg": 50, "sendmsg": 65, "poll": 230, "poll_of_ten": 400, "select": 170, "epoll_wait": 60, "epoll_ctl": 120,
        "setsockopt": 90, "dup_and_close": 320, "socket_and_close": 35, "connect_and_close": 9000}),
    "after DDPMODE": (["--prefer", "--engine", "shm"], "returned", {
        "": 22, "recvmsg": 60, "sendmsg": 75, "poll": 240, "poll_of_ten": 500, "select": 190, "epoll_wait": 60, "epoll_ctl": 380,
        "getsockopt": 270, "setsockopt": 280, "ioctl": 300, "dup_and_close": 800, "socket_and_close": 35, "connect_and_close": 9000}),
}


def callgrind(folder, *options):
    return ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={folder}/out", *options]


def total(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    name = re.search(r"Trigger: --dump-after=case_(\w+)", text)
    return name and name[1], int(re.search(r"^totals: (\d+)", text, re.M)[1])


def loaded(options):
    return [] if options is None else [DDPRUN, *options, "--"]


def count_calls(names, options, how, registry):
    """Instructions of one call of each kind."""
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0), backlog=4 * TIMES) as server:
        done = subprocess.run(
            [*loaded(options), *callgrind(folder, "--toggle-collect=case_*", *(f"--dump-after=case_{n}" for n in names)), PROGRAM, how,
             str(server.getsockname()[1])],
            env=exchange.clean_environment(LD_BIND_NOW="1", DDPSOCK_REGISTRY_DIR=registry), capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            sys.exit(f"{options}: {done}")
        # Each was called twice, and the second counts.
        return {name: count / TIMES for name, count in (total(f"{folder}/out.{i}") for i in range(2, 2 * len(names) + 1, 2))}


def check_calls(registry):
    with open(SOURCE, encoding="utf-8") as file:
        names = re.findall(r"^CASE\((\w+)\)", file.read(), re.M)
    counts = {column: count_calls(names, options, how, registry) for column, (options, how, _) in COLUMNS.items()}
    print(f"{'instructions of':20}" + "".join(f"{column:>16}" for column in COLUMNS))
    wrong = []
    for name in names:
        native = counts["native"][name]
        more = {column: count[name] - native for column, count in counts.items() if column != "native"}
        print(f"{name:20}{native:16.1f}" + "".join(f"{m:+16.1f}" for m in more.values()))
        for column, m in more.items():
            most = COLUMNS[column][2].get(name, COLUMNS[column][2][""])
            if m > most:
                wrong.append(f"{name}, {column}: {m:.1f} instructions more, of {most}")
    return wrong


# What cases make that neither connect nor duplicate: each as often as natively, but for what leads to the connection.
SYSTEM_CALLS = ("read", "write", "readv", "writev", "recvmsg", "sendmsg", "poll", "pselect6", "epoll_wait", "epoll_ctl", "ioctl", "setsockopt")
MOST_TO_START = 20


def count_system_calls(options, how, registry):
    with tempfile.NamedTemporaryFile("r") as table, socket.create_server(("127.0.0.1", 0), backlog=4 * TIMES) as server:
        subprocess.run([*loaded(options), "strace", "-f", "-c", "-U", "calls,name", "-o", table.name, PROGRAM, how, str(server.getsockname()[1])],
                       env=exchange.clean_environment(DDPSOCK_REGISTRY_DIR=registry), check=True, timeout=60)
        return {found[2]: int(found[1]) for found in re.finditer(r"^ *(\d+) +(\w+)$", table.read(), re.M)}


def check_system_calls(registry):
    if not exchange.find("strace"):
        print("strace is not installed")
        return []
    counts = {column: count_system_calls(options, how, registry) for column, (options, how, _) in COLUMNS.items()}
    return [f"{name}, {column}: {count[name]} system calls, natively {counts['native'][name]}" for column, count in counts.items()
            for name in SYSTEM_CALLS if not 0 <= count[name] - counts["native"][name] <= MOST_TO_START]


SETTINGS = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/errors;
events {{ worker_connections 64; }}
http {{
  access_log off; keepalive_requests 1000000;
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};
  server {{ listen 127.0.0.1:{port}; root {folder}; }}
}}
"""


def count_server(options, requests, registry):
    """Instructions of an nginx that answers so many requests of one client, from its start to its end."""
    with tempfile.TemporaryDirectory() as folder:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        with open(f"{folder}/settings", "w", encoding="ascii") as settings, open(f"{folder}/page", "w", encoding="ascii") as page:
            settings.write(SETTINGS.format(folder=folder, port=port))
            page.write("x" * 1000)
        os.chmod(folder, 0o755)
        server = subprocess.Popen(
            [*loaded(options), *callgrind(folder), exchange.find("nginx"), "-c", f"{folder}/settings"],
            env=exchange.clean_environment(DDPSOCK_REGISTRY_DIR=registry), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        try:
            with connect(port) as client, client.makefile("rb") as answers:
                for _ in range(requests):
                    client.sendall(b"GET /page HTTP/1.1\r\nHost: a\r\n\r\n")
                    while answers.readline() != b"\r\n":
                        pass
                    answers.read(1000)
            server.send_signal(signal.SIGQUIT)
            server.wait(20)
        finally:
            with contextlib.suppress(ProcessLookupError):
                server.kill()
            server.wait()
        return total(f"{folder}/out")[1]


def connect(port):
    deadline = time.monotonic() + 20
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=20)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def check_server(registry):
    if not exchange.find("nginx"):
        print("nginx is not installed")
        return []
    native, off = ((count_server(options, MANY, registry) - count_server(options, FEW, registry)) / (MANY - FEW)
                   for options in (None, ["--off"]))
    share = off / native - 1
    said = f"a request to nginx: {native:.0f} instructions, with the library and rules off {off:.0f} ({share:+.2%})"
    print(said)
    return [said] if share > MOST_OF_SERVER else []


def main():
    if not shutil.which("valgrind"):
        print("valgrind is not installed")
        return SKIPPED
    with tempfile.TemporaryDirectory(prefix="ddpsock-test-") as registry:
        wrong = check_calls(registry) + check_system_calls(registry) + check_server(registry)
    for line in wrong:
        print("too many:", line)
    return 1 if wrong else 0


if __name__ == "__main__":
    PROGRAM, SOURCE, DDPRUN = map(os.path.abspath, sys.argv[1:4])
    sys.exit(main())
