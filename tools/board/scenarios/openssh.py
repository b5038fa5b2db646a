# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""OpenSSH with keys and a server of its own."""

import os
import pathlib
import shutil
import signal

from stage import PYTHON, digest, expect, is_listening, wait_until

SSHD, PORT, ECHO_PORT, FORWARDED = "/usr/sbin/sshd", 2222, 7007, 7100
PEERS = pathlib.Path(__file__).resolve().parent.parent / "peers"
SIZE = 8 << 20

CONFIG = """Port {port}
ListenAddress {address}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized
StrictModes no
UsePAM no
PermitRootLogin yes
PermitUserEnvironment no
PidFile {folder}/pid
MaxSessions 20
MaxStartups 50
Subsystem sftp {sftp}
"""


class Ssh:
    sftp = "/usr/lib/openssh/sftp-server"

    def __init__(self, stage):
        self.stage = stage

    def start(self):
        stage = self.stage
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
        for name in ("host_key", "key"):
            stage.plain("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", stage.folder / name)
        shutil.copy(stage.folder / "key.pub", stage.folder / "authorized")
        self.key = stage.client_folder / "key"
        shutil.copy(stage.folder / "key", self.key)
        if stage.client_user:
            shutil.chown(self.key, stage.client_user)
        self.key.chmod(0o600)
        config = stage.write("sshd_config", CONFIG.format(port=PORT, address=stage.address, folder=stage.folder, sftp=self.sftp))
        self.server = stage.server(SSHD, "-D", "-e", "-f", config, port=PORT)
        self.data = stage.data("data", SIZE)
        self.options = ["-F", "/dev/null", "-i", self.key, "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
                        "-o", "LogLevel=ERROR", "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes"]
        self.host = f"root@{stage.address}"

    def finish(self):
        self.stage.stop(self.server)

    def ssh(self, *words, options=(), **how):
        return self.stage.client("ssh", *self.options, "-p", PORT, *options, self.host, *words, **how)

    def expect_data(self, output, what="what came back"):
        expect(digest(output) == digest(self.data), f"{what}: not the bytes that were sent")


class Sessions(Ssh):
    def check_a_command_and_its_status(self):
        expect(self.ssh("echo", "word") == b"word\n", "the words of the command")
        self.ssh("exit 7", status=7)

    def check_bytes_both_ways(self):
        self.expect_data(self.ssh("cat", input=self.data.read_bytes()))

    def check_bytes_both_ways_compressed(self):
        self.expect_data(self.ssh("cat", options=["-C"], input=self.data.read_bytes()))

    def check_keys_anew_in_the_middle(self):
        self.expect_data(self.ssh("cat", options=["-o", "RekeyLimit=1M"], input=self.data.read_bytes()))

    def check_a_terminal(self):
        expect(b"/dev/pts" in self.ssh("tty", options=["-tt"]), "no terminal")

    def check_many_at_once(self):
        started = [self.stage.start_client("ssh", *self.options, "-p", PORT, self.host, "sha256sum < " + str(self.data))
                   for _ in range(8)]
        for process in started:
            expect(process.wait(40) == 0, f"status {process.returncode}: {self.stage.said(process)}")
            expect(digest(self.data) in self.stage.said(process), "another sum")

    def check_one_connection_for_many_sessions(self):
        control = self.stage.client_folder / "control"
        master = self.stage.start_client("ssh", *self.options, "-p", PORT, "-M", "-N", "-S", control, self.host)
        wait_until(control.exists, "the master's socket")
        for number in range(4):
            said = self.ssh("echo", str(number), options=["-S", control, "-o", "ControlMaster=no"])
            expect(said == f"{number}\n".encode(), "another session's words")
        self.ssh(options=["-S", control, "-O", "exit"])
        master.wait(20)

    def check_silence_with_questions_whether_we_live(self):
        said = self.ssh("sleep 3; echo alive", options=["-o", "ServerAliveInterval=1", "-o", "ServerAliveCountMax=2"])
        expect(said == b"alive\n", "it ended in silence")

    def check_a_client_that_is_killed(self):
        begun, over = self.stage.folder / "begun", self.stage.folder / "over"
        client = self.stage.start_client("ssh", *self.options, "-p", PORT, self.host, f"echo > {begun}; cat; echo > {over}", stdin=-1)
        wait_until(begun.exists, "the session begins")
        os.kill(client.pid, signal.SIGKILL)
        client.wait()
        wait_until(over.exists, "the server's session sees the end")


class Copies(Ssh):
    def start(self):
        super().start()
        for number in range(20):
            self.stage.data(f"tree/{number % 3}/file{number}", 30_000 * number)

    def expect_tree(self, where):
        for path in (self.stage.folder / "tree").rglob("file*"):
            copy = where / path.relative_to(self.stage.folder / "tree")
            expect(digest(copy) == digest(path), f"{copy.name} is not as it was sent")

    def scp(self, *words):
        self.stage.client("scp", *self.options, "-P", PORT, *words)

    def check_scp_to_the_server(self):
        self.scp(self.data, f"{self.host}:{self.stage.folder}/to")
        self.expect_data(self.stage.folder / "to")

    def check_scp_from_the_server(self):
        self.scp(f"{self.host}:{self.data}", self.stage.client_folder / "from")
        self.expect_data(self.stage.client_folder / "from")

    def check_scp_of_a_tree_both_ways(self):
        self.scp("-r", self.stage.folder / "tree", f"{self.host}:{self.stage.folder}/tree2")
        self.expect_tree(self.stage.folder / "tree2")
        self.scp("-r", f"{self.host}:{self.stage.folder}/tree2", self.stage.client_folder / "tree3")
        self.expect_tree(self.stage.client_folder / "tree3")

    def check_scp_the_old_way(self):
        self.scp("-O", self.data, f"{self.host}:{self.stage.folder}/old")
        self.expect_data(self.stage.folder / "old")
        self.scp("-O", f"{self.host}:{self.data}", self.stage.client_folder / "old")
        self.expect_data(self.stage.client_folder / "old")

    def check_sftp(self):
        batch = self.stage.write("batch", f"put {self.data} {self.stage.folder}/put\nget {self.data} {self.stage.client_folder}/get\n"
                                          f"ls -l {self.stage.folder}\nrename {self.stage.folder}/put {self.stage.folder}/put2\n")
        self.stage.client("sftp", *self.options, "-P", PORT, "-b", batch, self.host)
        self.expect_data(self.stage.folder / "put2")
        self.expect_data(self.stage.client_folder / "get")


class CopiesInside(Copies):
    sftp = "internal-sftp"


class Forwards(Ssh):
    def start(self):
        super().start()
        self.stage.server(PYTHON, PEERS / "echo.py", self.stage.address, ECHO_PORT, port=ECHO_PORT)

    def talk(self, address, port):
        return self.stage.client(PYTHON, PEERS / "talk.py", address, port, self.data)

    def forward(self, options, is_ready):
        process = self.stage.start_client("ssh", *self.options, "-p", PORT, "-o", "ExitOnForwardFailure=yes", "-N", *options, self.host)
        wait_until(lambda: is_ready() or process.poll() is not None, "the forwarder")
        expect(process.poll() is None, self.stage.said(process))
        return process

    def listens(self, port):
        """At the client's end, which may be elsewhere."""
        if not self.stage.is_elsewhere:
            return lambda: is_listening(port)
        return lambda: f":{port:04X} ".encode() in self.stage.client("cat", "/proc/net/tcp")

    def check_local(self):
        process = self.forward(["-L", f"127.0.0.1:{FORWARDED}:{self.stage.address}:{ECHO_PORT}"], self.listens(FORWARDED))
        for _ in range(3):
            self.expect_data(self.talk("127.0.0.1", FORWARDED))
        self.stage.stop(process)

    def check_remote(self):
        # sshd's listener and what it forwards to are both at the server's end, what it is asked by is the client.
        process = self.forward(["-R", f"{FORWARDED + 1}:{self.stage.address}:{ECHO_PORT}"], lambda: is_listening(FORWARDED + 1))
        if self.stage.is_elsewhere:
            said = self.stage.at_the_server(PYTHON, PEERS / "talk.py", "127.0.0.1", FORWARDED + 1, self.data)
        else:
            said = self.talk("127.0.0.1", FORWARDED + 1)
        self.expect_data(said)
        self.stage.stop(process)

    def check_by_socks(self):
        process = self.forward(["-D", f"127.0.0.1:{FORWARDED + 2}"], self.listens(FORWARDED + 2))
        script = "import http.server,functools,sys; http.server.ThreadingHTTPServer((sys.argv[1], 8088), functools.partial(" \
                 "http.server.SimpleHTTPRequestHandler, directory=sys.argv[2])).serve_forever()"
        web = self.stage.server(PYTHON, "-c", script, self.stage.address, self.stage.folder, port=8088)
        self.expect_data(self.stage.client("curl", "-sSf", "--socks5", f"127.0.0.1:{FORWARDED + 2}",
                                           f"http://{self.stage.address}:8088/data"))
        self.stage.stop(web)
        self.stage.stop(process)

    def check_a_jump(self):
        proxy = " ".join(map(str, ["ssh", *self.options, "-p", PORT, "-W", "%h:%p", self.host]))
        self.expect_data(self.ssh("cat", options=["-o", f"ProxyCommand={proxy}"], input=self.data.read_bytes()))


PIECES = {"sessions": Sessions, "copies": Copies, "copies-inside": CopiesInside, "forwards": Forwards}
