# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""PostgreSQL: a process for each connection, signals in the middle of waits, cancel requests by a connection of their own."""

import os
import signal
import time

from stage import digest, expect, wait_until

PORT, BIN, OWNER = 5599, "/usr/lib/postgresql/15/bin", "postgres"


class Sessions:
    def __init__(self, stage):
        self.stage = stage

    def start(self):
        stage = self.stage
        stage.folder.chmod(0o777)
        self.base = stage.folder / "base"
        self.as_owner = ["setpriv", f"--reuid={OWNER}", f"--regid={OWNER}", "--init-groups", "--"]
        stage.plain(*self.as_owner, f"{BIN}/initdb", "-A", "trust", "-D", self.base, "-N", "--locale=C", seconds=120)
        with open(self.base / "postgresql.conf", "a", encoding="ascii") as config:
            config.write(f"listen_addresses = '{stage.address}'\nport = {PORT}\nunix_socket_directories = ''\nfsync = off\n"
                         "shared_buffers = 32MB\nmax_connections = 40\n")
        with open(self.base / "pg_hba.conf", "a", encoding="ascii") as config:
            config.write("host all all 0.0.0.0/0 trust\n")
        self.server = self.serve()
        self.at = ["-h", stage.address, "-p", str(PORT), "-U", OWNER]

    def serve(self):
        # The superuser may not run it: who it becomes comes before the library.
        loading, self.stage.server_loading = self.stage.server_loading, [*self.as_owner, *self.stage.server_loading]
        try:
            return self.stage.server(f"{BIN}/postgres", "-D", self.base, port=PORT)
        finally:
            self.stage.server_loading = loading

    def finish(self):
        self.server.send_signal(signal.SIGINT)
        expect(self.server.wait(30) == 0, f"status {self.server.returncode}")

    def psql(self, *words, **how):
        return self.stage.client("psql", *self.at, "-d", "postgres", "-qAtX", "-v", "ON_ERROR_STOP=1", *words, **how).decode().strip()

    def check_pgbench(self):
        self.stage.client("pgbench", *self.at, "-i", "-s", "2", "-q", "postgres", seconds=100)
        said = self.stage.client("pgbench", *self.at, "-c", "8", "-j", "2", "-t", "200", "postgres", seconds=100).decode()
        expect("actually processed: 1600/1600" in said, said)

    def check_pgbench_select_and_prepared(self):
        said = self.stage.client("pgbench", *self.at, "-S", "-M", "prepared", "-c", "8", "-j", "2", "-t", "1000", "postgres", seconds=100).decode()
        expect("actually processed: 8000/8000" in said, said)

    def check_pgbench_a_connection_for_each(self):
        said = self.stage.client("pgbench", *self.at, "-S", "-C", "-c", "4", "-t", "50", "postgres", seconds=100).decode()
        expect("actually processed: 200/200" in said, said)

    def check_copy_in_and_out(self):
        rows = b"".join(b"%d\t%s\n" % (number, b"x" * (number % 200)) for number in range(100_000))
        self.psql("-c", "create table copied (number int, words text)")
        self.psql("-c", "copy copied from stdin", input=rows)
        out = self.stage.client("psql", *self.at, "-d", "postgres", "-qAtX", "-c", "copy (select * from copied order by number) to stdout")
        expect(digest(out) == digest(rows), "not the rows that were sent")

    def check_a_large_result(self):
        said = self.psql("-c", "select repeat(md5('x'), 500000)")
        expect(len(said) == 16_000_000 and len(set(said[at:at + 32] for at in range(0, len(said), 32))) == 1, "another result")

    def check_a_query_is_cancelled(self):
        waiting = self.stage.start_client("psql", *self.at, "-d", "postgres", "-c", "select pg_sleep(60)")
        wait_until(lambda: self.psql("-c", "select count(*) from pg_stat_activity where wait_event = 'PgSleep'") == "1", "it sleeps")
        os.kill(waiting.pid, signal.SIGINT)
        waiting.wait(20)
        wait_until(lambda: "cancel" in self.stage.said(waiting), "it is said")
        wait_until(lambda: self.psql("-c", "select count(*) from pg_stat_activity where wait_event = 'PgSleep'") == "0", "it no longer sleeps")

    def check_a_statement_is_too_slow(self):
        self.psql("-c", "set statement_timeout = 500; select pg_sleep(30)", status=1)
        expect("statement timeout" in self.stage.errors, self.stage.errors)

    def check_listen_and_notify(self):
        hearing = self.stage.start_client("psql", *self.at, "-d", "postgres", "-qAtX", stdin=-1)
        hearing.stdin.write(b"listen news;\nselect 'ready';\n")
        hearing.stdin.flush()
        wait_until(lambda: "ready" in self.stage.said(hearing), "it listens")
        for number in range(10):
            self.psql("-c", f"notify news, 'word-{number}'")
        hearing.stdin.write(b"select 1;\n")
        hearing.stdin.close()
        hearing.wait(20)
        expect(self.stage.said(hearing).count("word-") == 10, self.stage.said(hearing))

    def check_a_backend_is_ended(self):
        waiting = self.stage.start_client("psql", *self.at, "-d", "postgres", "-c", "select pg_sleep(60)")
        wait_until(lambda: self.psql("-c", "select count(*) from pg_stat_activity where wait_event = 'PgSleep'") == "1", "it sleeps")
        self.psql("-c", "select pg_terminate_backend(pid) from pg_stat_activity where wait_event = 'PgSleep'")
        expect(waiting.wait(20) != 0, "it did not notice")

    def check_a_backend_is_killed_and_all_begin_again(self):
        waiting = self.stage.start_client("psql", *self.at, "-d", "postgres", "-c", "select pg_sleep(60)")
        pid = wait_until(lambda: self.psql("-c", "select pid from pg_stat_activity where wait_event = 'PgSleep'"), "it sleeps")
        os.kill(int(pid), signal.SIGKILL)
        expect(waiting.wait(20) != 0, "it did not notice")
        time.sleep(1)
        wait_until(lambda: self.psql("-c", "select 1", status=None) == "1", "it serves again")


PIECES = {"sessions": Sessions}
