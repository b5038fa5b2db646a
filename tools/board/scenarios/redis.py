# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Redis with redis-cli and redis-benchmark: pipelines, large values, children that save, replicas, a cluster, subscribers."""

import re
import time

from stage import digest, expect, wait_until

PORT, SIZE = 6400, 16 << 20


class Redis:
    more = ()

    def __init__(self, stage):
        self.stage = stage

    def start(self):
        self.server = self.serve(PORT, *self.more)

    def serve(self, port, *more):
        folder = self.stage.folder / str(port)
        folder.mkdir(exist_ok=True)
        return self.stage.server("redis-server", "--port", port, "--bind", self.stage.address, "--dir", folder, "--save", "",
                                 "--daemonize", "no", "--protected-mode", "no", *more, port=port)

    def finish(self):
        self.stage.stop(self.server)

    def cli(self, *words, port=PORT, **how):
        return self.stage.client("redis-cli", "-h", self.stage.address, "-p", port, *words, **how).decode(errors="replace").strip()

    def info(self, name, port=PORT):
        found = re.search(rf"^{name}:(.*?)\r?$", self.cli("info", port=port), re.MULTILINE)
        expect(found, f"no {name} in info")
        return found[1]

    def fill(self, keys, port=PORT):
        lines = "".join(f"SET key:{number} {'v' * (1 + number % 300)}\r\n" for number in range(keys))
        said = self.cli("--pipe", input=lines.encode(), port=port)
        expect(f"errors: 0, replies: {keys}" in said, said)


class Commands(Redis):
    requests = 3000

    def check_benchmark(self):
        said = self.cli_benchmark("-t", "ping,set,get,incr,lpush,lpop,sadd,hset,mset,lrange_100", "-n", self.requests)
        expect("error" not in said.lower(), said)

    def check_benchmark_with_pipelines(self):
        said = self.cli_benchmark("-t", "set,get", "-n", 20 * self.requests, "-P", 32, "-d", 600)
        expect("error" not in said.lower(), said)

    def check_benchmark_with_large_values_and_threads(self):
        said = self.cli_benchmark("-t", "set,get", "-n", self.requests // 10, "-c", 10, "-d", 1 << 20, "--threads", 2)
        expect("error" not in said.lower(), said)

    def cli_benchmark(self, *words):
        return self.stage.client("redis-benchmark", "-h", self.stage.address, "-p", PORT, "--csv", *words).decode()

    def check_a_large_value(self):
        data = self.stage.data("large", SIZE)
        expect(self.cli("-x", "set", "large", input=data.read_bytes()) == "OK", "set")
        got = self.stage.client("redis-cli", "-h", self.stage.address, "-p", PORT, "--raw", "get", "large")
        expect(digest(got[:-1]) == digest(data), "not the bytes that were sent")

    def check_many_commands_in_a_pipe(self):
        self.fill(100_000)
        expect(int(self.cli("dbsize")) >= 100_000, "keys are missing")

    def check_a_transaction(self):
        said = self.cli(input=b"MULTI\nSET one 1\nINCR one\nEXEC\n")
        expect(said.split()[-2:] == ["OK", "2"], said)

    def check_a_blocking_pop(self):
        waiting = self.stage.start_client("redis-cli", "-h", self.stage.address, "-p", PORT, "blpop", "queue", "20")
        wait_until(lambda: self.info("blocked_clients") == "1", "the client is blocked")
        self.cli("rpush", "queue", "word")
        expect(waiting.wait(20) == 0 and "word" in self.stage.said(waiting), self.stage.said(waiting))

    def check_a_blocking_pop_that_is_too_late(self):
        expect(self.cli("blpop", "empty", "1") == "", "there was something")

    def check_subscribers(self):
        hearing = [self.stage.start_client("redis-cli", "-h", self.stage.address, "-p", PORT, "subscribe", "news") for _ in range(5)]
        wait_until(lambda: self.cli("pubsub", "numsub", "news").split()[-1] == "5", "five subscribers")
        for number in range(50):
            expect(self.cli("publish", "news", f"word-{number}") == "5", "somebody is missing")
        for process in hearing:
            wait_until(lambda each=process: "word-49" in each.log.read_text(), "the last word")
            expect(process.log.read_text().count("word-") == 50, "words are missing")
            process.kill()
            process.wait()

    def check_a_client_that_is_ended(self):
        waiting = self.stage.start_client("redis-cli", "-h", self.stage.address, "-p", PORT, "blpop", "never", "0")
        wait_until(lambda: self.info("blocked_clients") == "1", "the client is blocked")
        number = re.search(r"id=(\d+) .*cmd=blpop", self.cli("client", "list"))[1]
        expect(self.cli("client", "kill", "id", number) == "1", "kill")
        waiting.wait(20)

    def check_many_connections_one_after_another(self):
        said = self.cli_benchmark("-t", "ping", "-n", self.requests // 2, "-k", "0", "-c", 10)
        expect("error" not in said.lower(), said)


class IoThreads(Commands):
    requests = 500  # its threads spin
    more = ("--io-threads", "2", "--io-threads-do-reads", "yes")


class Saving(Redis):
    more = ("--appendonly", "yes")

    def check_saving_in_a_child_while_written_to(self):
        self.fill(30_000)
        load = self.stage.start_client("redis-benchmark", "-h", self.stage.address, "-p", PORT, "-t", "set", "-n", "40000", "-r", "10000", "-q")
        for _ in range(3):
            self.cli("bgsave")
            wait_until(lambda: self.info("rdb_bgsave_in_progress") == "0", "the child has saved")
        expect(self.info("rdb_last_bgsave_status") == "ok", "the child failed")
        expect(load.wait(40) == 0, self.stage.said(load))

    def check_the_log_is_written_anew(self):
        self.fill(30_000)
        self.cli("bgrewriteaof")
        wait_until(lambda: self.info("aof_rewrite_in_progress") == "0" and self.info("aof_rewrite_scheduled") == "0", "the child has written")
        expect(self.info("aof_last_bgrewrite_status") == "ok", "the child failed")

    def check_what_was_saved_is_there_again(self):
        size = self.cli("dbsize")
        self.stage.stop(self.server)
        self.start()
        wait_until(lambda: self.info("loading") == "0", "loaded")
        expect(self.cli("dbsize") == size, "another number of keys")


class Replicas(Redis):
    """The replica is a server and a client of another one."""

    def start(self):
        super().start()
        self.fill(50_000)
        self.replicas = []

    def replica(self, port, *more):
        process = self.serve(port, "--replicaof", self.stage.address, PORT, *more)
        self.replicas.append(process)
        wait_until(lambda: self.info("master_link_status", port) == "up", "the replica is in step", 30)
        return process

    def expect_same(self, port):
        wait_until(lambda: self.cli("debug", "digest") == self.cli("debug", "digest", port=port), "the same data", 30)

    def check_a_replica_by_file(self):
        self.cli("config", "set", "repl-diskless-sync", "no")
        self.replica(PORT + 1)
        self.expect_same(PORT + 1)

    def check_a_replica_by_socket(self):
        self.cli("config", "set", "repl-diskless-sync", "yes")
        self.cli("config", "set", "repl-diskless-sync-delay", "0")
        self.replica(PORT + 2, "--repl-diskless-load", "swapdb")
        self.expect_same(PORT + 2)

    def check_they_follow_while_written_to(self):
        self.stage.client("redis-benchmark", "-h", self.stage.address, "-p", PORT, "-t", "set", "-n", "20000", "-r", "10000", "-q")
        expect(self.cli("wait", "2", "10000") == "2", "a replica is behind")
        self.expect_same(PORT + 1)
        self.expect_same(PORT + 2)

    def check_one_that_is_killed_and_comes_back(self):
        self.replicas[0].kill()
        self.replicas[0].wait()
        self.fill(1000)
        self.replica(PORT + 1)
        self.expect_same(PORT + 1)

    def finish(self):
        for replica in self.replicas[1:]:
            self.stage.stop(replica)
        super().finish()


class Cluster(Redis):
    def start(self):
        self.servers = [self.serve(PORT + number, "--cluster-enabled", "yes") for number in range(3)]

    def check_it_is_made_and_answers(self):
        nodes = [f"{self.stage.address}:{PORT + number}" for number in range(3)]
        said = self.stage.client("redis-cli", "--cluster", "create", *nodes, "--cluster-yes").decode()
        expect("All 16384 slots covered" in said, said)
        for number in range(3):
            wait_until(lambda port=PORT + number: "cluster_state:ok" in self.cli("cluster", "info", port=port), "the cluster is there")
        for number in range(100):
            expect("OK" in self.cli("-c", "set", f"key{number}", str(number)), "set")
        for number in range(100):
            expect(self.cli("-c", "get", f"key{number}").endswith(str(number)), "get")

    def check_a_slot_moves(self):
        self.stage.client("redis-cli", "--cluster", "rebalance", f"{self.stage.address}:{PORT}", "--cluster-weight",
                          self.cli("cluster", "myid") + "=2")
        said = self.stage.client("redis-cli", "--cluster", "check", f"{self.stage.address}:{PORT}").decode()
        expect("All 16384 slots covered" in said, said)

    def check_a_node_that_is_killed_is_missed(self):
        self.cli("config", "set", "cluster-node-timeout", "1000")
        self.cli("config", "set", "cluster-node-timeout", "1000", port=PORT + 1)
        self.servers[2].kill()
        self.servers[2].wait()
        wait_until(lambda: "cluster_state:fail" in self.cli("cluster", "info"), "it is missed", 30)

    def finish(self):
        for server in self.servers[:2]:
            self.stage.stop(server)


PIECES = {"commands": Commands, "io-threads": IoThreads, "saving": Saving, "replicas": Replicas, "cluster": Cluster}
