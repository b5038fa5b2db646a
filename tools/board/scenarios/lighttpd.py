# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""lighttpd: files by sendfile and by writev to many clients at once, of aria2's ranges and siege's; and behind tinyproxy."""

from stage import PYTHON, digest, expect, number_in

PORT, PROXY_PORT, SIZE = 8380, 8381, 8 << 20
CONFIG = """server.document-root = "{folder}/web"
server.bind = "{address}"
server.port = {port}
server.modules = ("mod_cgi", "mod_status")
server.event-handler = "{events}"
server.network-backend = "{backend}"
server.max-keep-alive-requests = 50
mimetype.assign = (".html" => "text/html")
cgi.assign = (".py" => "{python}")
status.status-url = "/status"
"""
SUM = """import hashlib, os, sys
words = hashlib.sha256(sys.stdin.buffer.read(int(os.environ["CONTENT_LENGTH"]))).hexdigest()
print("Content-Type: text/plain\\n")
print(words, end="")
"""
PROXY = """Port {port}
Listen {address}
Timeout 60
MaxClients 50
Allow {address}
Allow 127.0.0.1
Allow 10.77.0.0/24
LogFile "{folder}/tinyproxy.log"
PidFile "{folder}/tinyproxy.pid"
"""


class Serving:
    events, backend = "linux-sysepoll", "sendfile"

    def __init__(self, stage):
        self.stage = stage

    def start(self):
        stage = self.stage
        self.data = stage.data("web/data", SIZE)
        stage.data("web/small.html", 612)
        stage.write("web/sum.py", SUM)
        config = stage.write("lighttpd.conf", CONFIG.format(folder=stage.folder, address=stage.address, port=PORT, events=self.events,
                                                            backend=self.backend, python=PYTHON))
        self.server = stage.server("/usr/sbin/lighttpd", "-D", "-f", config, port=PORT)
        self.url = f"http://{stage.address}:{PORT}"

    def finish(self):
        self.stage.stop(self.server)

    def curl(self, *words, **how):
        return self.stage.client("curl", "-sSf", *words, **how)

    def expect_data(self, found):
        expect(digest(found) == digest(self.data), "not the bytes that were sent")

    def check_a_download(self):
        for _ in range(3):
            self.expect_data(self.curl(self.url + "/data"))

    def check_an_upload_to_a_program(self):
        expect(self.curl("--data-binary", f"@{self.data}", self.url + "/sum.py").decode() == digest(self.data), "not the bytes that were sent")

    def check_many_small_on_one_connection(self):
        said = self.curl(*[self.url + "/small.html"] * 120)
        expect(said == (self.stage.folder / "web/small.html").read_bytes() * 120, "not the bytes that were sent")

    def check_ranges_at_once_by_aria2(self):
        self.stage.client("aria2c", "-q", "-x", "8", "-s", "8", "-k", "1M", "-d", self.stage.client_folder, "-o", "ranges",
                          "--allow-overwrite=true", self.url + "/data")
        self.expect_data(self.stage.client_folder / "ranges")

    def check_siege(self):
        said = self.stage.client("siege", "-R", self.stage.write("siegerc", "verbose = false\njson_output = true\n"), "-b", "-c", "8", "-r", "60",
                                 self.url + "/small.html")
        expect(number_in(r'"availability":\s+([0-9.]+)', said) == 100, said.decode())

    def check_a_slow_reader(self):
        self.expect_data(self.curl("--limit-rate", "6M", self.url + "/data"))


class Proxied(Serving):
    def start(self):
        super().start()
        stage = self.stage
        config = stage.write("tinyproxy.conf", PROXY.format(folder=stage.folder, address=stage.address, port=PROXY_PORT))
        self.proxy = stage.server("tinyproxy", "-d", "-c", config, port=PROXY_PORT)

    def finish(self):
        self.stage.stop(self.proxy)
        super().finish()

    def curl(self, *words, **how):
        return super().curl("-x", f"http://{self.stage.address}:{PROXY_PORT}", *words, **how)

    def check_through_connect(self):
        self.expect_data(self.curl("-p", self.url + "/data"))


PIECES = {"serving": Serving, "through-tinyproxy": Proxied}
