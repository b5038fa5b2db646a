# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""rsync's daemon: a child for each connection, and on each side processes that share one."""

import os
import shutil
import signal
import time

from stage import digest, expect

PORT = 8730
CONFIG = """port = {port}
address = {address}
use chroot = {chroot}
pid file = {folder}/rsyncd.pid
log file = {folder}/rsyncd.log
lock file = {folder}/rsyncd.lock
uid = root
gid = root
[files]
path = {folder}/files
[up]
path = {folder}/up
read only = no
"""


class Daemon:
    def __init__(self, stage):
        self.stage = stage

    def start(self):
        stage = self.stage
        for number in range(200):
            stage.data(f"files/{number % 7}/file{number}", number * 2000)
        self.large = stage.data("files/large", 16 << 20)
        (stage.folder / "up").mkdir()
        config = stage.write("rsyncd.conf", CONFIG.format(port=PORT, address=stage.address, folder=stage.folder, chroot="yes"))
        self.server = stage.server("rsync", "--daemon", "--no-detach", "--config", config, port=PORT)
        self.url = f"rsync://{stage.address}:{PORT}"

    def finish(self):
        self.stage.stop(self.server)

    def rsync(self, *words, **how):
        return self.stage.client("rsync", "-a", "--no-o", "--no-g", *words, **how)

    def expect_tree(self, where):
        for path in (self.stage.folder / "files").rglob("*"):
            if path.is_file():
                expect(digest(where / path.relative_to(self.stage.folder / "files")) == digest(path), f"{path.name} is not as it was")

    def check_a_list(self):
        expect(b"large" in self.rsync(f"{self.url}/files/"), "not listed")

    def check_a_tree_from_it(self):
        self.rsync(f"{self.url}/files/", self.stage.client_folder / "one/")
        self.expect_tree(self.stage.client_folder / "one")

    def check_a_tree_from_it_compressed(self):
        self.rsync("-z", f"{self.url}/files/", self.stage.client_folder / "two/")
        self.expect_tree(self.stage.client_folder / "two")

    def check_a_tree_to_it(self):
        self.rsync(f"{self.stage.folder}/files/", f"{self.url}/up/tree/")
        self.expect_tree(self.stage.folder / "up" / "tree")

    def check_what_changed(self):
        copy = self.stage.client_folder / "changed"
        data = bytearray(self.large.read_bytes())
        data[5_000_000:5_000_100] = b"x" * 100
        copy.write_bytes(data)
        if self.stage.client_user:
            shutil.chown(copy, self.stage.client_user)
        self.rsync("--no-whole-file", "--inplace", "-c", f"{self.url}/files/large", copy)
        expect(digest(copy) == digest(self.large), "not as it was")

    def check_many_at_once(self):
        started = [self.stage.start_client("rsync", "-a", "--no-o", "--no-g", f"{self.url}/files/", self.stage.client_folder / f"at-once{number}/")
                   for number in range(4)]
        for number, process in enumerate(started):
            expect(process.wait(50) == 0, self.stage.said(process))
            self.expect_tree(self.stage.client_folder / f"at-once{number}")

    def check_one_that_is_killed_and_goes_on(self):
        where = self.stage.client_folder / "partly"
        client = self.stage.start_client("rsync", "-a", "--no-o", "--no-g", "--partial", "--bwlimit=2m", f"{self.url}/files/large", where)
        time.sleep(1.5)
        os.killpg(client.pid, signal.SIGKILL)
        client.wait()
        self.rsync("--partial", f"{self.url}/files/large", where)
        expect(digest(where) == digest(self.large), "not as it was")
        shutil.rmtree(where, ignore_errors=True)


PIECES = {"daemon": Daemon}
