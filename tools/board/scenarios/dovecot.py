# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Dovecot: a login process, confined in a chroot, that hands each connection to a mail process once its user is known."""

import shutil

from stage import PYTHON, expect

PORT, USER = 1143, "mail"
CONFIG = """protocols = imap
listen = {address}
base_dir = /run/dovecot
state_dir = {folder}/state
log_path = {folder}/dovecot.log
ssl = no
{more}
disable_plaintext_auth = no
mail_location = maildir:{folder}/mail
first_valid_uid = 1
first_valid_gid = 1
default_login_user = dovenull
default_internal_user = dovecot
login_trusted_networks = 0.0.0.0/0
service imap-login {{
  inet_listener imap {{
    port = {port}
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
passdb {{
  driver = static
  args = password=secret
}}
userdb {{
  driver = static
  args = uid={user} gid={user} home={folder}/mail
}}
"""
CLIENT = """
import hashlib, imaplib, random, sys
box = imaplib.IMAP4(sys.argv[1], int(sys.argv[2]))
box.login("someone", "secret")
name = "box" + sys.argv[3]
made = box.create(name)
# Of several that are created at once Dovecot may find one there that it has just made.
assert made[0] == "OK" or b"ALREADYEXISTS" in made[1][0], made
draw = random.Random(sys.argv[3])
letters = [b"Subject: %d\\r\\n\\r\\n%s\\r\\n" % (n, draw.randbytes(draw.choice((100, 20_000, 400_000))).hex().encode()) for n in range(12)]
for letter in letters:
    assert box.append(name, None, None, letter)[0] == "OK"
assert box.select(name)[1][0] == b"12"
for n, letter in enumerate(letters, 1):
    assert box.fetch(str(n), "(RFC822)")[1][0][1] == letter, n
assert box.search(None, "SUBJECT", "11")[1] == [b"12"]
box.close()
assert box.logout()[0] == "BYE"
print("all is there")
"""
IDLE = """
import imaplib, sys
def logged_in():
    box = imaplib.IMAP4(sys.argv[1], int(sys.argv[2]))
    box.login("someone", "secret")
    return box
one, two = logged_in(), logged_in()
one.select("INBOX")
one.send(b"i1 IDLE\\r\\n")
assert one.readline().startswith(b"+")
two.append("INBOX", None, None, b"Subject: new\\r\\n\\r\\nnew\\r\\n")
assert b"EXISTS" in one.readline()
one.send(b"DONE\\r\\n")
while not one.readline().startswith(b"i1 OK"):
    pass
two.logout()
one.logout()
"""


class Mail:
    more = ""

    def __init__(self, stage):
        self.stage = stage

    def start(self):
        stage = self.stage
        (stage.folder / "mail").mkdir()
        shutil.chown(stage.folder / "mail", USER, USER)
        config = stage.write("dovecot.conf", CONFIG.format(address=stage.address, folder=stage.folder, port=PORT, user=USER, more=self.more))
        self.server = stage.server("dovecot", "-F", "-c", config, port=PORT)

    def finish(self):
        self.stage.stop(self.server)

    def letters(self, name):
        return PYTHON, "-c", CLIENT, self.stage.address, PORT, name

    def check_letters_of_all_sizes(self):
        expect(b"all is there" in self.stage.client(*self.letters("one")), "not all")

    def check_many_clients(self):
        started = [self.stage.start_client(*self.letters(f"many{number}")) for number in range(5)]
        for process in started:
            expect(process.wait(50) == 0, self.stage.said(process))

    def check_told_of_a_new_letter(self):
        self.stage.client(PYTHON, "-c", IDLE, self.stage.address, PORT)

    def check_curl(self):
        self.stage.client("curl", "-sSf", "-u", "someone:secret", "-T", self.stage.write("letter", "Subject: curl\n\nhello\n"),
                          f"imap://{self.stage.address}:{PORT}/INBOX")
        said = self.stage.client("curl", "-sSf", "-u", "someone:secret", f"imap://{self.stage.address}:{PORT}/INBOX?SUBJECT%20curl")
        expect(said.strip().startswith(b"* SEARCH "), said.decode())

    def check_a_wrong_password(self):
        self.stage.client("curl", "-sSf", "-u", "someone:wrong", f"imap://{self.stage.address}:{PORT}/", status=67)


class WithEnvironment(Mail):
    """Its processes get no environment but what this names: without it none but the first has the library."""
    more = "import_environment = LD_PRELOAD DDPSOCK_RULES DDPSOCK_ENGINE"


PIECES = {"mail": Mail, "with-environment": WithEnvironment}
