# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""HAProxy between clients and a web server, copying, splicing, and reloaded under load with its listeners handed on."""

import os
import signal
import time

from stage import PYTHON, digest, expect, number_in

PORT, BACK_PORT, SIZE = 8280, 8281, 8 << 20
CONFIG = """global
  master-worker
  stats socket {folder}/stats mode 600 level admin expose-fd listeners
  maxconn 500
  {more_global}
defaults
  mode {mode}
  timeout connect 5s
  timeout client 30s
  timeout server 30s
  {more}
frontend front
  bind {address}:{port}
  default_backend back
backend back
  server one {address}:{back}
"""
BACK = """
import functools, http.server, sys
class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_): pass
    def do_PUT(self):
        import hashlib
        words = hashlib.sha256(self.rfile.read(int(self.headers["Content-Length"]))).hexdigest().encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(words)))
        self.end_headers()
        self.wfile.write(words)
http.server.ThreadingHTTPServer.request_queue_size = 128
http.server.ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), functools.partial(Handler, directory=sys.argv[3])).serve_forever()
"""

# A connection for each request, one after another; any that fails is an error.
ASK = """
import sys, time, urllib.request
until = time.monotonic() + float(sys.argv[2])
while time.monotonic() < until:
    with urllib.request.urlopen(sys.argv[1], timeout=20) as answer:
        assert len(answer.read()) == 612
"""


class Proxy:
    mode, more, more_global = "tcp", "", ""

    def __init__(self, stage):
        self.stage = stage

    def start(self):
        stage = self.stage
        self.data = stage.data("web/data", SIZE)
        stage.data("web/small", 612)
        self.back = stage.server(PYTHON, "-c", BACK, stage.address, BACK_PORT, stage.folder / "web", port=BACK_PORT)
        config = stage.write("haproxy.cfg", CONFIG.format(folder=stage.folder, mode=self.mode, more=self.more, more_global=self.more_global,
                                                          address=stage.address, port=PORT, back=BACK_PORT))
        self.server = stage.server("/usr/sbin/haproxy", "-W", "-db", "-f", config, "-p", stage.folder / "pid", port=PORT)
        self.url = f"http://{stage.address}:{PORT}"

    def finish(self):
        self.server.send_signal(signal.SIGTERM)
        self.server.wait(20)

    def expect_data(self, found):
        expect(digest(found) == digest(self.data), "not the bytes that were sent")

    def curl(self, *words, **how):
        return self.stage.client("curl", "-sSf", *words, **how)

    def check_a_download(self):
        for _ in range(3):
            self.expect_data(self.curl(self.url + "/data"))

    def check_an_upload(self):
        expect(self.curl("-T", self.data, self.url + "/put").decode() == digest(self.data), "not the bytes that were sent")

    def check_eight_at_once(self):
        started = [self.stage.start_client("curl", "-sSf", "-o", self.stage.client_folder / f"copy{number}", self.url + "/data")
                   for number in range(8)]
        for number, process in enumerate(started):
            expect(process.wait(40) == 0, self.stage.said(process))
            self.expect_data(self.stage.client_folder / f"copy{number}")

    def check_wrk(self):
        said = self.stage.client("wrk", "-t1", "-c10", "-d2s", self.url + "/small")
        expect(b"Socket errors" not in said and b"Non-2xx" not in said and number_in(r"(\d+) requests in", said) > 50, said.decode())

    def check_a_slow_reader(self):
        self.expect_data(self.curl("--limit-rate", "6M", self.url + "/data"))

    def check_reload_under_load(self):
        load = self.stage.start_client(PYTHON, "-c", ASK, f"{self.url}/small", 4)
        for _ in range(3):
            time.sleep(1.2)
            os.kill(self.server.pid, signal.SIGUSR2)
        expect(load.wait(30) == 0, self.stage.said(load))

    def check_a_backend_that_goes_and_comes(self):
        self.stage.stop(self.back)
        self.curl("-m", "20", self.url + "/small", status=None)
        self.back = self.stage.server(PYTHON, "-c", BACK, self.stage.address, BACK_PORT, self.stage.folder / "web", port=BACK_PORT)
        self.expect_data(self.curl(self.url + "/data"))


class Copying(Proxy):
    more_global = "nosplice"


class Splicing(Proxy):
    more = "option splice-auto\n  option splice-request\n  option splice-response"


class Http(Proxy):
    mode = "http"
    more = "option http-keep-alive\n  retries 3"


PIECES = {"copying": Copying, "splicing": Splicing, "http": Http}
