#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Programs that nobody wrote for this: each moves bytes between two processes, and the bytes are compared.

programs_test.py [--without NAME]... [COMMAND...]   COMMAND stands before each program, to load the library

Prints TAP. A program that is not installed is skipped, and named; --without skips one known not to hold.
"""

import argparse
import hashlib
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

SECONDS = 20  # for each program
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
BYTES = random.Random(7).randbytes(8 << 20)
DIGEST = hashlib.sha256(BYTES).hexdigest()

ASYNCIO_SERVER = """
import asyncio
async def echo(reader, writer):
    while data := await reader.read(70000):
        writer.write(data)
        await writer.drain()
    writer.close()
async def main():
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    print("port", server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""
ASYNCIO_CLIENT = """
import asyncio, sys
async def main():
    reader, writer = await asyncio.open_connection("127.0.0.1", int(sys.argv[1]))
    data = open(sys.argv[2], "rb").read()
    async def send():
        writer.write(data)
        await writer.drain()
        writer.write_eof()
    sending = asyncio.create_task(send())
    sys.stdout.buffer.write(await reader.read(-1))
    await sending
asyncio.run(main())
"""
SOCKETSERVER = """
import socketserver
class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        while data := self.rfile.read1(50000):
            self.wfile.write(data)
with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
    print("port", server.server_address[1], flush=True)
    server.serve_forever()
"""
FORKING_SERVER = SOCKETSERVER.replace("ThreadingTCPServer", "ForkingTCPServer")
SENDFILE_SERVER = """
import socket, sys
with socket.create_server(("127.0.0.1", 0)) as server:
    print("port", server.getsockname()[1], flush=True)
    while True:
        connection, _ = server.accept()
        with connection, open(sys.argv[1], "rb") as file:
            connection.sendfile(file)
"""
THREADED_CLIENT = """
import socket, sys, threading
data = open(sys.argv[2], "rb").read()
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
    def send():
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
    thread = threading.Thread(target=send)
    thread.start()
    with connection.makefile("rb") as file:
        sys.stdout.buffer.write(file.read())
    thread.join()
"""
HTTP_SERVER = """
import functools, http.server, sys
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[1])
with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
    print("port", server.server_port, flush=True)
    server.serve_forever()
"""
PERL_SERVER = """
use IO::Socket::INET; $| = 1; $SIG{CHLD} = "IGNORE";
my $listener = IO::Socket::INET->new(Listen => 5, LocalAddr => "127.0.0.1") or die $!;
print "port ", $listener->sockport, "\\n";
while (1) {
    my $connection = $listener->accept or next;
    next if fork;
    while (sysread($connection, my $bytes, 30000)) {
        for (my $at = 0; $at < length $bytes;) { $at += syswrite($connection, $bytes, length($bytes) - $at, $at) // die $! }
    }
    exit 0;
}
"""
PERL_CLIENT = """
use IO::Socket::INET; $SIG{CHLD} = "IGNORE";
my $connection = IO::Socket::INET->new("127.0.0.1:$ARGV[0]") or die $!;
if (fork == 0) {
    open my $file, "<:raw", $ARGV[1] or die $!;
    while (sysread($file, my $bytes, 40000)) {
        for (my $at = 0; $at < length $bytes;) { $at += syswrite($connection, $bytes, length($bytes) - $at, $at) // die $! }
    }
    $connection->shutdown(1);
    exit 0;
}
binmode STDOUT; $| = 1;
while (sysread($connection, my $bytes, 20000)) { print STDOUT $bytes }
"""


class Failed(Exception):
    pass


class Skipped(Exception):
    pass


def find(program):
    path = shutil.which(program)
    if not path:
        raise Skipped(f"{program} is not installed")
    return path


class Bench:
    """Starts programs behind the loading command, in a folder of its own, and ends them."""

    def __init__(self, loading, folder):
        self.loading = loading
        self.folder = pathlib.Path(folder)
        self.file = str(self.folder / "data")
        self.running = []

    def start_server(self, command):
        """Starts it and returns its port, once it prints one."""
        server = subprocess.Popen([*self.loading, *command], cwd=self.folder, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        self.running.append(server)
        for line in server.stdout:
            if found := re.search(r"(?:port |ACCEPT \S*:)(\d+)", line):
                threading.Thread(target=server.stdout.read, daemon=True).start()
                return found[1]
        raise Failed(f"{command[0]}: no port, status {server.wait()}")

    def run(self, command, stdin=None):
        run = subprocess.run([*self.loading, *command], cwd=self.folder, capture_output=True, input=stdin, timeout=SECONDS)
        if run.returncode != 0:
            raise Failed(f"{command[0]}: status {run.returncode}: {run.stderr.decode(errors='replace').strip()[-300:]}")
        return run.stdout

    def expect_data(self, output):
        if hashlib.sha256(output).hexdigest() != DIGEST:
            raise Failed(f"{len(output)} bytes of {len(BYTES)}, or other ones")

    def end(self):
        for server in self.running:
            server.kill()
            server.wait()


def asyncio_echo(bench):
    port = bench.start_server([PYTHON, "-c", ASYNCIO_SERVER])
    bench.expect_data(bench.run([PYTHON, "-c", ASYNCIO_CLIENT, port, bench.file]))


def socketserver_threads(bench):
    port = bench.start_server([PYTHON, "-c", SOCKETSERVER])
    bench.expect_data(bench.run([PYTHON, "-c", THREADED_CLIENT, port, bench.file]))


def socketserver_forks(bench):
    port = bench.start_server([PYTHON, "-c", FORKING_SERVER])
    bench.expect_data(bench.run([PYTHON, "-c", THREADED_CLIENT, port, bench.file]))


def asyncio_to_threads(bench):
    port = bench.start_server([PYTHON, "-c", SOCKETSERVER])
    bench.expect_data(bench.run([PYTHON, "-c", ASYNCIO_CLIENT, port, bench.file]))


def python_sendfile(bench):
    port = bench.start_server([PYTHON, "-c", SENDFILE_SERVER, bench.file])
    bench.expect_data(bench.run([PYTHON, "-c", THREADED_CLIENT, port, "/dev/null"]))


def curl_download(bench):
    port = bench.start_server([PYTHON, "-c", HTTP_SERVER, str(bench.folder)])
    bench.expect_data(bench.run([find("curl"), "-sSf", f"http://127.0.0.1:{port}/data"]))


def curl_many_at_once(bench):
    port = bench.start_server([PYTHON, "-c", HTTP_SERVER, str(bench.folder)])
    urls = [f"http://127.0.0.1:{port}/data"] * 4
    outputs = [bench.folder / f"copy{number}" for number in range(len(urls))]
    pairs = [word for url, output in zip(urls, outputs) for word in (url, "-o", str(output))]
    bench.run([find("curl"), "-sSf", "--parallel", *pairs])
    for output in outputs:
        bench.expect_data(output.read_bytes())


def perl_echo(bench):
    port = bench.start_server([find("perl"), "-e", PERL_SERVER])
    bench.expect_data(bench.run([find("perl"), "-e", PERL_CLIENT, port, bench.file]))


def openssl_and_curl(bench):
    openssl, key, certificate = find("openssl"), str(bench.folder / "key"), str(bench.folder / "certificate")
    bench.run([openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
               "-subj", "/CN=localhost", "-keyout", key, "-out", certificate])
    port = bench.start_server([openssl, "s_server", "-accept", "127.0.0.1:0", "-key", key, "-cert", certificate, "-WWW"])
    bench.expect_data(bench.run([find("curl"), "-sSfk", "--http0.9", f"https://127.0.0.1:{port}/data"]))


def tar_and_xz(bench):
    tree = bench.folder / "tree"
    tree.mkdir()
    (tree / "data").write_bytes(BYTES)
    packed = subprocess.run([find("tar"), "-c", "-C", str(bench.folder), "tree"], capture_output=True, check=True).stdout
    small = subprocess.run([find("xz"), "-0"], input=packed, capture_output=True, check=True).stdout
    (bench.folder / "data.xz").write_bytes(small)
    port = bench.start_server([PYTHON, "-c", SOCKETSERVER])
    echoed = bench.run([PYTHON, "-c", THREADED_CLIENT, port, str(bench.folder / "data.xz")])
    unpacked = subprocess.run(["xz", "-d"], input=echoed, capture_output=True, check=True).stdout
    bench.expect_data(subprocess.run(["tar", "-xO"], input=unpacked, capture_output=True, check=True).stdout)


def nc_transfer(bench):
    port = bench.start_server([PYTHON, "-c", SENDFILE_SERVER, bench.file])
    bench.expect_data(bench.run([find("nc"), "127.0.0.1", port], stdin=b""))


PROGRAMS = [asyncio_echo, socketserver_threads, socketserver_forks, asyncio_to_threads, python_sendfile, curl_download,
            curl_many_at_once, perl_echo, openssl_and_curl, tar_and_xz, nc_transfer]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="append", default=[])
    parser.add_argument("loading", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    if args.loading:  # the programs run in folders of their own
        args.loading[0] = os.path.abspath(args.loading[0])
    print(f"1..{len(PROGRAMS)}")
    for number, program in enumerate(PROGRAMS, 1):
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(args.loading, folder)
            pathlib.Path(bench.file).write_bytes(BYTES)
            start = time.monotonic()
            watchdog = threading.Timer(2 * SECONDS, bench.end)
            watchdog.start()
            try:
                if program.__name__ in args.without:
                    raise Skipped("does not hold yet")
                program(bench)
                print(f"ok {number} - {program.__name__} ({time.monotonic() - start:.1f} s)")
            except Skipped as why:
                print(f"ok {number} - {program.__name__} # SKIP {why}")
            except (Failed, subprocess.TimeoutExpired) as why:
                print(f"not ok {number} - {program.__name__}: {str(why)[-400:]}".replace("\n", " "))
            finally:
                watchdog.cancel()
                bench.end()
            sys.stdout.flush()


if __name__ == "__main__":
    main()
