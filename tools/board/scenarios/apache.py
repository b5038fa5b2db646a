# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Apache in its three ways to serve: a process for each connection, threads, and threads behind an event loop."""

import os
import signal
import time

from stage import digest, expect, number_in, wait_until

PORT, BACK_PORT, MODULES, SIZE = 8180, 8181, "/usr/lib/apache2/modules", 8 << 20
CONFIG = """ServerRoot {folder}
ServerName localhost
PidFile {folder}/pid
DefaultRuntimeDir {folder}
Mutex file:{folder}
ErrorLog {folder}/error.log
User {user}
Group root
Listen {address}:{port}
Listen {address}:{back}
LoadModule mpm_{mpm}_module {modules}/mod_mpm_{mpm}.so
LoadModule authz_core_module {modules}/mod_authz_core.so
LoadModule proxy_module {modules}/mod_proxy.so
LoadModule proxy_http_module {modules}/mod_proxy_http.so
DocumentRoot {folder}/web
StartServers 2
MaxRequestWorkers 100
GracefulShutdownTimeout 5
EnableSendfile {sendfile}
KeepAlive On
MaxKeepAliveRequests 0
<Directory {folder}/web>
Require all granted
</Directory>
ProxyPass /back/ http://{address}:{back}/
"""


class Apache:
    mpm, sendfile = "", "on"

    def __init__(self, stage):
        self.stage = stage

    def start(self):
        stage = self.stage
        self.data = stage.data("web/data", SIZE)
        stage.data("web/small", 612)
        # Apache refuses to be the superuser's.
        config = stage.write("apache.conf", CONFIG.format(folder=stage.folder, address=stage.address, port=PORT, back=BACK_PORT, user="www-data",
                                                          mpm=self.mpm, modules=MODULES, sendfile=self.sendfile))
        self.config = config
        self.server = stage.server("/usr/sbin/apache2", "-f", config, "-DFOREGROUND", port=PORT)
        self.url = f"http://{stage.address}:{PORT}"

    def finish(self):
        self.stage.stop(self.server)

    def expect_data(self, found):
        expect(digest(found) == digest(self.data), "not the bytes that were sent")

    def curl(self, *words, **how):
        return self.stage.client("curl", "-sSf", *words, **how)

    def expect_ab(self, said):
        expect(number_in(r"Failed requests: +(\d+)", said) == 0 and b"Non-2xx" not in said, said.decode(errors="replace"))

    def check_small_and_large(self):
        expect(len(self.curl(self.url + "/small")) == 612, "another length")
        self.expect_data(self.curl(self.url + "/data"))

    def check_ab(self):
        self.expect_ab(self.stage.client("ab", "-n", "2000", "-c", "10", self.url + "/small"))

    def check_ab_on_connections_that_stay(self):
        self.expect_ab(self.stage.client("ab", "-k", "-n", "5000", "-c", "10", self.url + "/small"))

    def check_ab_large(self):
        self.expect_ab(self.stage.client("ab", "-k", "-n", "60", "-c", "4", self.url + "/data"))

    def check_proxying(self):
        self.expect_data(self.curl(self.url + "/back/data"))
        self.expect_ab(self.stage.client("ab", "-n", "1000", "-c", "5", self.url + "/back/small"))

    def check_reload_under_ab(self):
        load = self.stage.start_client("ab", "-n", "100000", "-t", "5", "-c", "8", self.url + "/small")
        for _ in range(3):
            time.sleep(1.2)
            os.kill(self.server.pid, signal.SIGUSR1)  # gracefully
        expect(load.wait(40) == 0, self.stage.said(load))
        self.expect_ab(load.log.read_bytes())
        wait_until(lambda: self.curl(self.url + "/small"), "it answers")

    def check_a_slow_download_over_a_reload(self):
        load = self.stage.start_client("curl", "-sSf", "--limit-rate", "3M", "-o", self.stage.client_folder / "slow", self.url + "/data")
        time.sleep(0.5)
        os.kill(self.server.pid, signal.SIGUSR1)
        expect(load.wait(40) == 0, self.stage.said(load))
        self.expect_data(self.stage.client_folder / "slow")

    def check_a_restart(self):
        os.kill(self.server.pid, signal.SIGHUP)
        time.sleep(1)
        self.expect_data(self.curl("--retry", "5", "--retry-connrefused", "--retry-delay", "1", self.url + "/data"))


class Prefork(Apache):
    mpm = "prefork"


class Worker(Apache):
    mpm, sendfile = "worker", "off"


class Event(Apache):
    mpm = "event"


PIECES = {"prefork": Prefork, "worker": Worker, "event": Event}
