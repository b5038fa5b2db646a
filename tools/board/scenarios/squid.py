# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Squid as a cache and as a way through (CONNECT)."""

import haproxy
from stage import PYTHON, digest, expect

PORT, BACK_PORT, SIZE = 8380, 8381, 8 << 20
CONFIG = """http_port {address}:{port}
http_access allow all
cache_mem 64 MB
maximum_object_size_in_memory 16 MB
coredump_dir {folder}
pid_filename {folder}/squid.pid
access_log none
cache_log {folder}/cache.log
cache_effective_user proxy
visible_hostname localhost
shutdown_lifetime 1 seconds
pinger_enable off
netdb_filename none
"""


class Cache:
    def __init__(self, stage):
        self.stage = stage

    def start(self):
        stage = self.stage
        stage.folder.chmod(0o777)  # it writes there as its own user
        self.data = stage.data("web/data", SIZE)
        self.back = stage.server(PYTHON, "-c", haproxy.BACK, stage.address, BACK_PORT, stage.folder / "web", port=BACK_PORT)
        config = stage.write("squid.conf", CONFIG.format(folder=stage.folder, address=stage.address, port=PORT))
        self.server = stage.server("/usr/sbin/squid", "-N", "-f", config, port=PORT)
        self.url = f"http://{stage.address}:{BACK_PORT}"

    def finish(self):
        self.stage.stop(self.server)

    def curl(self, *words, **how):
        return self.stage.client("curl", "-sSf", "-x", f"http://{self.stage.address}:{PORT}", *words, **how)

    def expect_data(self, found):
        expect(digest(found) == digest(self.data), "not the bytes that were sent")

    def check_a_miss_and_hits(self):
        for _ in range(4):
            self.expect_data(self.curl(self.url + "/data"))

    def check_a_way_through(self):
        self.expect_data(self.curl("-p", self.url + "/data"))

    def check_an_upload(self):
        expect(self.curl("-T", self.data, self.url + "/put").decode() == digest(self.data), "not the bytes that were sent")

    def check_eight_at_once(self):
        started = [self.stage.start_client("curl", "-sSf", "-x", f"http://{self.stage.address}:{PORT}", "-o",
                                           self.stage.client_folder / f"copy{number}", self.url + "/data") for number in range(8)]
        for number, process in enumerate(started):
            expect(process.wait(40) == 0, self.stage.said(process))
            self.expect_data(self.stage.client_folder / f"copy{number}")

    def check_nobody_there(self):
        self.curl(f"http://{self.stage.address}:9/", status=22)


PIECES = {"proxy": Cache}
