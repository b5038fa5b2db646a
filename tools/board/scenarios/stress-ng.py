# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""stress-ng's stressors that use sockets: each is both ends, parent and child, and checks what it can."""

from stage import expect


class Sockets:
    def __init__(self, stage):
        self.stage = stage

    def start(self):
        pass

    def finish(self):
        pass

    def stress(self, name, *words):
        said = self.stage.client("stress-ng", f"--{name}", "1", *words, "-t", "2", "--verify", "--metrics-brief", "--temp-path",
                                 self.stage.client_folder, status=None)
        words = said.decode(errors="replace") + self.stage.errors
        expect("successful run completed" in words and "fail:" not in words, words)

    def check_sock(self):
        self.stress("sock")

    def check_sock_by_each_way_to_send(self):
        for way in ("send", "sendmsg", "sendmmsg"):
            self.stress("sock", "--sock-opts", way)

    def check_sock_of_ipv6(self):
        self.stress("sock", "--sock-domain", "ipv6")

    def check_sock_without_delay(self):
        self.stress("sock", "--sock-nodelay")

    def check_sock_with_zero_copies(self):
        self.stress("sock", "--sock-zerocopy")

    def check_sockmany(self):
        self.stress("sockmany")

    def check_sockabuse(self):
        self.stress("sockabuse")

    def check_sockfd(self):
        self.stress("sockfd")

    def check_sockpair(self):
        self.stress("sockpair")

    def check_sockdiag(self):
        self.stress("sockdiag")

    def check_epoll(self):
        self.stress("epoll")

    def check_sendfile(self):
        self.stress("sendfile")

    def check_splice(self):
        self.stress("splice")

    def check_poll(self):
        self.stress("poll")

    def check_dup(self):
        self.stress("dup")

    def check_close(self):
        self.stress("close")

    def check_fork(self):
        self.stress("fork")

    def check_vfork(self):
        self.stress("vfork")

    def check_clone(self):
        self.stress("clone")

    def check_io_uring(self):
        self.stress("io-uring")


PIECES = {"sockets": Sockets}
