# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""MariaDB: a thread for each connection, or a pool of them."""

import signal

from stage import expect, wait_until

PORT = 3399


class Sessions:
    more = ()

    def __init__(self, stage):
        self.stage = stage

    def start(self):
        stage = self.stage
        base = stage.folder / "base"
        stage.plain("mariadb-install-db", "--no-defaults", f"--datadir={base}", "--user=root", "--auth-root-authentication-method=normal",
                    "--skip-test-db", seconds=120)
        self.server = stage.server("/usr/sbin/mariadbd", "--no-defaults", f"--datadir={base}", "--user=root", f"--port={PORT}",
                                   f"--bind-address={stage.address}", f"--socket={stage.folder}/sock", f"--pid-file={stage.folder}/pid",
                                   "--innodb-buffer-pool-size=32M", "--innodb-flush-log-at-trx-commit=0", "--max-allowed-packet=64M", *self.more,
                                   port=PORT)
        wait_until((stage.folder / "sock").exists, "its socket")
        stage.plain("mariadb", "--no-defaults", f"--socket={stage.folder}/sock", "-e",
                    "create user 'board'@'%'; grant all on *.* to 'board'@'%'; create database board")
        self.at = ["--no-defaults", "-h", stage.address, "-P", str(PORT), "-u", "board", "--protocol=tcp"]

    def finish(self):
        self.stage.stop(self.server, 40)

    def sql(self, words, **how):
        return self.stage.client("mariadb", *self.at, "--max-allowed-packet=64M", "-N", "-B", "board", "-e", words, **how).decode().strip()

    def check_rows(self):
        self.sql("create table numbers (number int primary key, words varchar(200))")
        lines = "".join(f"insert into numbers values ({number}, repeat('x', {number % 200}));" for number in range(3000))
        self.stage.client("mariadb", *self.at, "board", input=("start transaction;" + lines + "commit;").encode())
        expect(self.sql("select count(*), sum(length(words)) from numbers") == f"3000\t{sum(n % 200 for n in range(3000))}", "other rows")

    def check_a_large_result(self):
        expect(self.sql("select repeat('abcdefgh', 1000000)") == "abcdefgh" * 1_000_000, "another result")

    def check_a_large_statement(self):
        said = self.stage.client("mariadb", *self.at, "--max-allowed-packet=64M", "-N", "-B", "board",
                                 input=b"select length('" + b"y" * 8_000_000 + b"');").decode().strip()
        expect(said == "8000000", said)

    def check_many_clients(self):
        said = self.stage.client("mariadb-slap", *self.at, "--concurrency=8", "--iterations=2", "--number-of-queries=800",
                                 "--auto-generate-sql", "--create-schema=slap", seconds=60)
        expect(b"Benchmark" in said, said.decode())

    def check_a_dump_and_back(self):
        dump = self.stage.client("mariadb-dump", *self.at, "board")
        self.sql("create database copy")
        self.stage.client("mariadb", *self.at, "copy", input=dump)
        expect(self.sql("select count(*) from copy.numbers") == "3000", "rows are missing")

    def check_a_query_is_killed(self):
        waiting = self.stage.start_client("mariadb", *self.at, "-e", "select sleep(60)")
        number = wait_until(lambda: self.sql("select id from information_schema.processlist where info = 'select sleep(60)'"), "it sleeps")
        self.sql(f"kill query {number}")
        waiting.wait(20)
        waiting = self.stage.start_client("mariadb", *self.at, "-e", "select sleep(61)")
        number = wait_until(lambda: self.sql("select id from information_schema.processlist where info = 'select sleep(61)'"), "it sleeps")
        self.sql(f"kill {number}")
        expect(waiting.wait(20) != 0, "it did not notice")

    def check_a_client_that_is_killed(self):
        waiting = self.stage.start_client("mariadb", *self.at, "-e", "select sleep(62)")
        wait_until(lambda: self.sql("select id from information_schema.processlist where info = 'select sleep(62)'"), "it sleeps")
        waiting.send_signal(signal.SIGKILL)
        waiting.wait()
        wait_until(lambda: not self.sql("select id from information_schema.processlist where info = 'select sleep(62)'"), "it is missed", 30)


class Pool(Sessions):
    more = ("--thread-handling=pool-of-threads",)


PIECES = {"sessions": Sessions, "pool": Pool}
