# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""nginx: workers that share listeners, reload and a new binary under load, proxying, TLS."""

import os
import signal
import time

from stage import digest, expect, number_in, wait_until

PORT, TLS_PORT, UPSTREAM_PORT, SIZE = 8080, 8443, 8081, 8 << 20
CONFIG = """{more_main}
user root;
worker_processes 2;
pid {folder}/pid;
error_log {folder}/error.log;
events {{ worker_connections 512; {events} }}
http {{
  access_log off;
  {temporary}
  sendfile {sendfile};
  keepalive_requests 100000;
  client_max_body_size 64m;
  server {{
    listen {address}:{port} {listen};
    root {folder}/web;
    location /upstream/ {{ proxy_pass http://{address}:{upstream}/; proxy_http_version 1.1; {proxy} }}
  }}
  server {{
    listen {address}:{upstream} {listen};
    root {folder}/web;
    location /put/ {{ dav_methods PUT; create_full_put_path on; }}
  }}
  server {{
    listen {address}:{tls} ssl;
    ssl_certificate {folder}/certificate;
    ssl_certificate_key {folder}/key;
    root {folder}/web;
  }}
}}
"""
TEMPORARY = ("client_body_temp_path", "proxy_temp_path", "fastcgi_temp_path", "uwsgi_temp_path", "scgi_temp_path")
DEFAULTS = {"more_main": "", "events": "", "sendfile": "on", "listen": "", "proxy": ""}


class Web:
    settings = {}

    def __init__(self, stage):
        self.stage = stage

    def start(self):
        stage = self.stage
        stage.plain("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
                    "/CN=localhost", "-keyout", stage.folder / "key", "-out", stage.folder / "certificate")
        self.data = stage.data("web/data", SIZE)
        stage.data("web/small", 612)
        temporary = "".join(f"{name} {stage.folder}/{name}; " for name in TEMPORARY)
        self.config = stage.write("nginx.conf", CONFIG.format(**DEFAULTS | self.settings, folder=stage.folder, address=stage.address,
                                                              port=PORT, upstream=UPSTREAM_PORT, tls=TLS_PORT, temporary=temporary))
        self.url = f"http://{stage.address}:{PORT}"
        self.serve()

    def serve(self):
        """In the background, as only then it changes its binary."""
        self.stage.server("/usr/sbin/nginx", "-c", self.config, port=TLS_PORT)

    def master(self):
        """Its file is empty for a moment."""
        return int(wait_until((self.stage.folder / "pid").read_text, "the master's number"))

    def ask(self, number):
        os.kill(self.master(), number)

    def ends(self, pid):
        wait_until(lambda: not os.path.exists(f"/proc/{pid}/exe"), "the master ends")

    def finish(self):
        master = self.master()
        self.ask(signal.SIGQUIT)
        self.ends(master)

    def expect_data(self, found):
        expect(digest(found) == digest(self.data), "not the bytes that were sent")

    def curl(self, *words, **how):
        return self.stage.client("curl", "-sSf", *words, **how)

    def wrk(self, path, seconds=2, connections=20, headers=()):
        """Raises if a request failed, or had no answer within the two seconds that wrk waits."""
        said = self.stage.client("wrk", "-t1", f"-c{connections}", f"-d{seconds}s", *headers, self.url + path, seconds=seconds + 30)
        expect(b"Socket errors" not in said and b"Non-2xx" not in said, said.decode())
        expect(number_in(r"(\d+) requests in", said) > 0, said.decode())


class Serving(Web):
    def check_small_and_large(self):
        expect(len(self.curl(self.url + "/small")) == 612, "another length")
        self.expect_data(self.curl(self.url + "/data"))

    def check_two_files_on_one_connection(self):
        both = self.curl(self.url + "/data", self.url + "/data")
        expect(digest(both) == digest(self.data.read_bytes() * 2), "not the bytes that were sent")

    def check_a_range(self):
        expect(self.curl("-r", "1000-5000000", self.url + "/data") == self.data.read_bytes()[1000:5000001], "another range")

    def check_tls(self):
        self.expect_data(self.curl("-k", f"https://{self.stage.address}:{TLS_PORT}/data"))

    def check_wrk_small(self):
        self.wrk("/small", connections=50)

    def check_wrk_large(self):
        self.wrk("/data", connections=4)

    def check_wrk_a_connection_for_each_request(self):
        self.wrk("/small", headers=("-H", "Connection: close"))

    def check_slow_reader(self):
        self.expect_data(self.curl("--limit-rate", "6M", self.url + "/data"))

    def check_eight_at_once(self):
        started = [self.stage.start_client("curl", "-sSf", "-o", self.stage.client_folder / f"copy{number}", self.url + "/data")
                   for number in range(8)]
        for number, process in enumerate(started):
            expect(process.wait(30) == 0, self.stage.said(process))
            self.expect_data(self.stage.client_folder / f"copy{number}")


class Copying(Serving):
    settings = {"sendfile": "off", "events": "multi_accept on;"}


class Sharding(Serving):
    settings = {"listen": "reuseport", "events": "accept_mutex on;"}


class Reload(Web):
    def check_reload_under_wrk(self):
        load = self.stage.start_client("wrk", "-t1", "-c10", "-d6s", "-H", "Connection: close", self.url + "/small")
        for _ in range(5):
            time.sleep(1)
            self.ask(signal.SIGHUP)
        expect(load.wait(30) == 0, f"status {load.returncode}")
        said = self.stage.said(load)
        expect("Socket errors" not in said and "Non-2xx" not in said, said)
        wait_until(lambda: len(self.workers()) == 2, "the old workers end")

    def check_reload_under_a_download(self):
        load = self.stage.start_client("curl", "-sSf", "--limit-rate", "3M", "-o", self.stage.client_folder / "slow", self.url + "/data")
        time.sleep(0.5)
        self.ask(signal.SIGHUP)
        self.expect_data(self.curl(self.url + "/data"))
        expect(load.wait(30) == 0, self.stage.said(load))
        self.expect_data(self.stage.client_folder / "slow")

    def check_a_worker_that_is_killed(self):
        for worker in self.workers():
            os.kill(worker, signal.SIGKILL)
        wait_until(lambda: len(self.workers()) == 2, "new workers")
        self.expect_data(self.curl(self.url + "/data"))

    def check_a_new_binary_under_load(self):
        load = self.stage.start_client("wrk", "-t1", "-c10", "-d5s", "-H", "Connection: close", self.url + "/small")
        old = self.master()
        self.ask(signal.SIGUSR2)
        wait_until(lambda: self.stage.folder.joinpath("pid.oldbin").exists() and self.stage.folder.joinpath("pid").exists()
                   and self.master() != old, "the new master")
        os.kill(old, signal.SIGWINCH)
        time.sleep(1)
        self.expect_data(self.curl(self.url + "/data"))
        os.kill(old, signal.SIGQUIT)
        self.ends(old)
        expect(load.wait(30) == 0, f"status {load.returncode}")
        said = self.stage.said(load)
        expect("Socket errors" not in said and "Non-2xx" not in said, said)
        self.expect_data(self.curl(self.url + "/data"))
        self.finish()
        self.serve()

    def workers(self):
        with open(f"/proc/{self.master()}/task/{self.master()}/children", encoding="ascii") as children:
            return [int(pid) for pid in children.read().split()]


class Proxying(Web):
    settings = {"proxy": "proxy_set_header Connection '';"}

    def check_a_download_through_it(self):
        self.expect_data(self.curl(self.url + "/upstream/data"))

    def check_an_upload_through_it(self):
        self.curl("-T", self.data, self.url + "/upstream/put/one")
        self.expect_data(self.stage.folder / "web" / "put" / "one")

    def check_wrk_through_it(self):
        self.wrk("/upstream/small")

    def check_an_upstream_that_is_not_there(self):
        self.curl(self.url + "/upstream/nothing", status=22)


class ProxyingUnbuffered(Proxying):
    settings = {"proxy": "proxy_buffering off; proxy_request_buffering off;"}


class Upgrade(Reload):
    """nginx hands its new binary no variable but those that it is told to."""
    settings = {"more_main": "env LD_PRELOAD; env DDPSOCK_RULES; env DDPSOCK_ENGINE;"}


PIECES = {"serving": Serving, "copying": Copying, "sharding": Sharding, "reload": Reload, "upgrade": Upgrade, "proxying": Proxying,
          "proxying-unbuffered": ProxyingUnbuffered}
