# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Exim: a process for each session, whose socket is its standard input and output; it delivers in processes of its own."""

from stage import PYTHON, digest, expect, wait_until

PORT = 2525
CONFIG = """primary_hostname = board.example
domainlist local_domains = board.example
exim_user = mail
exim_group = mail
never_users =
spool_directory = {folder}/spool
log_file_path = {folder}/spool/%slog
pid_file_path = {folder}/spool/pid
local_interfaces = {address}
daemon_smtp_ports = {port}
smtp_accept_max = 30
host_lookup =
rfc1413_query_timeout = 0s
tls_advertise_hosts =
keep_environment = ^DDPSOCK_ : LD_PRELOAD
message_size_limit = 50M
acl_smtp_rcpt = take
begin acl
take:
  accept
begin routers
all:
  driver = accept
  transport = file
begin transports
file:
  driver = appendfile
  directory = {folder}/box
  maildir_format
  user = mail
  group = mail
  create_directory
"""
CLIENT = """
import hashlib, random, smtplib, sys
with smtplib.SMTP(sys.argv[1], int(sys.argv[2])) as server:
    draw = random.Random(sys.argv[3])
    for number in range(6):
        body = draw.randbytes(draw.choice((100, 20_000, 300_000))).hex()
        text = "\\r\\n".join(body[at:at + 70] for at in range(0, len(body), 70))
        server.sendmail("a@board.example", ["b@board.example"], f"Subject: {hashlib.sha256(body.encode()).hexdigest()}\\r\\n\\r\\n{text}\\r\\n")
"""


class Mail:
    def __init__(self, stage):
        self.stage, self.sent = stage, 0

    def start(self):
        stage = self.stage
        for name in ("spool", "box"):
            (stage.folder / name).mkdir()
            (stage.folder / name).chmod(0o777)
        stage.plain("chown", "-R", "mail:mail", stage.folder / "spool", stage.folder / "box")
        config = stage.write("exim.conf", CONFIG.format(address=stage.address, folder=stage.folder, port=PORT))
        self.server = stage.server("/usr/sbin/exim4", "-bdf", "-q30m", "-C", config, port=PORT)

    def finish(self):
        self.stage.stop(self.server)

    def letters(self):
        return list((self.stage.folder / "box").glob("new/*"))

    def expect_letters(self, more):
        self.sent += more
        wait_until(lambda: len(self.letters()) >= self.sent, f"{self.sent} letters")
        expect(len(self.letters()) == self.sent, "more letters than were sent")
        for path in self.letters():
            head, _, body = path.read_bytes().partition(b"\n\n")
            if b"Subject: " in head:
                expect(digest(body.replace(b"\n", b"")).encode() in head, f"{path.name} is not as it was")

    def client(self, name):
        return PYTHON, "-c", CLIENT, self.stage.address, PORT, name

    def check_letters_of_all_sizes(self):
        self.stage.client(*self.client("one"))
        self.expect_letters(6)

    def check_many_clients(self):
        started = [self.stage.start_client(*self.client(f"many{number}")) for number in range(5)]
        for process in started:
            expect(process.wait(50) == 0, self.stage.said(process))
        self.expect_letters(30)

    def check_curl(self):
        letter = self.stage.write("letter", "From: a\n\nhello\n")
        self.stage.client("curl", "-sSf", "--mail-from", "a@board.example", "--mail-rcpt", "b@board.example", "-T", letter,
                          f"smtp://{self.stage.address}:{PORT}")
        self.expect_letters(1)


PIECES = {"mail": Mail}
