# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""vsftpd: a process and a user for each step of a session, chroot, connections handed from one to another. Its own seccomp
filter is off: newer C libraries make calls that it does not know, and it kills itself."""

import os
import shutil

from stage import PYTHON, digest, expect

PORT, SIZE = 2121, 8 << 20
CONFIG = """listen=YES
listen_address={address}
listen_port={port}
background=NO
anonymous_enable=YES
local_enable=NO
write_enable=YES
anon_upload_enable=YES
anon_mkdir_write_enable=YES
anon_other_write_enable=YES
anon_umask=022
anon_root={root}
ftp_username=ftp
no_anon_password=YES
pasv_min_port=30000
pasv_max_port=30100
connect_from_port_20=NO
secure_chroot_dir={folder}/empty
xferlog_enable=NO
max_per_ip=0
"""


# A transfer that is left after its first bytes, then another one in the same session.
GIVE_UP = """
import ftplib, sys
ftp = ftplib.FTP()
ftp.connect(sys.argv[1], int(sys.argv[2]))
ftp.login()
connection = ftp.transfercmd("RETR data")
connection.recv(1000)
connection.close()
try:
    ftp.voidresp()
except ftplib.error_temp:
    pass
assert "data" in ftp.nlst()
ftp.transfercmd("RETR data").recv(1000)
ftp.close()
"""


class Ftp:
    more = ""

    def __init__(self, stage):
        self.stage = stage

    def start(self):
        stage = self.stage
        (stage.folder / "empty").mkdir(mode=0o555)
        self.root = stage.folder / "ftp"
        (self.root / "up").mkdir(parents=True)
        self.root.chmod(0o755)  # vsftpd refuses a root that can be written
        shutil.chown(self.root / "up", "ftp", "nogroup")
        self.data = stage.data("ftp/data", SIZE)
        for number in range(12):
            stage.data(f"ftp/tree/{number % 2}/file{number}", 20_000 * number)
        config = stage.write("vsftpd.conf", CONFIG.format(address=stage.address, port=PORT, root=self.root, folder=stage.folder) + self.more)
        self.server = stage.server("/usr/sbin/vsftpd", config, port=PORT)
        self.url = f"ftp://{stage.address}:{PORT}"

    def finish(self):
        self.stage.stop(self.server)

    def curl(self, *words, **how):
        return self.stage.client("curl", "-sS", *words, **how)

    def expect_data(self, found):
        expect(digest(found) == digest(self.data), "not the bytes that were sent")

    def check_a_list(self):
        expect(b"data" in self.curl(self.url + "/"), "the file is not listed")

    def check_a_download(self):
        self.expect_data(self.curl(self.url + "/data"))

    def check_a_download_by_a_connection_of_the_server(self):
        self.expect_data(self.curl("-P", "-", self.url + "/data"))

    def check_an_upload(self):
        self.curl("-T", self.data, self.url + "/up/one")
        self.expect_data(self.root / "up" / "one")

    def check_an_upload_by_a_connection_of_the_server(self):
        self.curl("-P", "-", "-T", self.data, self.url + "/up/two")
        self.expect_data(self.root / "up" / "two")

    def check_the_rest_of_a_file(self):
        half = self.data.read_bytes()[SIZE // 2 + 3:]
        expect(digest(self.curl("-r", f"{SIZE // 2 + 3}-", self.url + "/data")) == digest(half), "another half")

    def check_many_files_in_one_session(self):
        names = sorted((self.root / "tree").rglob("file*"))
        words = [word for path in names for word in ("-o", self.stage.client_folder / path.name, f"{self.url}/tree/{path.relative_to(self.root / 'tree')}")]
        self.curl(*words)
        for path in names:
            expect(digest(self.stage.client_folder / path.name) == digest(path), f"{path.name} is not as it was")

    def check_many_sessions_at_once(self):
        started = [self.stage.start_client("curl", "-sS", "-o", self.stage.client_folder / f"copy{number}", self.url + "/data")
                   for number in range(8)]
        for number, process in enumerate(started):
            expect(process.wait(40) == 0, self.stage.said(process))
            self.expect_data(self.stage.client_folder / f"copy{number}")

    def check_a_download_that_is_given_up(self):
        for _ in range(5):
            self.stage.client(PYTHON, "-c", GIVE_UP, self.stage.address, PORT)
        self.expect_data(self.curl(self.url + "/data"))

    def check_a_tree_by_lftp(self):
        where = self.stage.client_folder / "mirror"
        self.stage.client("lftp", "-e", f"set net:max-retries 1; set cmd:fail-exit yes; mirror --parallel=3 tree {where}; "
                          f"mirror -R {where} up/tree; quit", self.url, env=os.environ | {"HOME": str(self.stage.client_folder)})
        for path in sorted((self.root / "tree").rglob("file*")):
            for copy in (where, self.root / "up" / "tree"):
                expect(digest(copy / path.relative_to(self.root / "tree")) == digest(path), f"{path.name} is not as it was")


class Unfiltered(Ftp):
    more = "seccomp_sandbox=NO\n"


class OneProcess(Ftp):
    more = "seccomp_sandbox=NO\none_process_model=YES\n"


PIECES = {"unfiltered": Unfiltered, "one-process": OneProcess}
