#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What is read from the output of programs from elsewhere: their words, and that anything else is refused."""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("bench", "tools", "lab")]

import guest_pairs
import iperf
import nginx
import pair
import peers
import postgres
import redis
from recorder import Failed

REDIS = """"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"
"GET","17361.11","0.051","0.024","0.047","0.079","0.111","0.535"
"""
WRK = """Running 1s test @ http://127.0.0.1:8080/612B
  1 threads and 50 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.26ms  419.26us   8.40ms   92.36%
    Req/Sec    40.29k     2.57k   44.63k    72.73%
  44053 requests in 1.10s, 35.92MB read
Requests/sec:  40049.66
Transfer/sec:     32.65MB
"""
PGBENCH = """transaction type: <builtin: select only>
number of clients: 8
number of transactions per client: 100
number of transactions actually processed: 800/800
number of failed transactions: 0 (0.000%)
latency average = 0.417 ms
initial connection time = 12.345 ms
tps = 19184.652278 (without initial connection time)
"""
UCX = """iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr
 2000,0.310,0.330,0.340,22.44,1000.00,2941176,2941176
"""
FABRIC = """bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
8       20k     =20k     312k        0.85s      0.38      21.23       0.05
"""
PERFTEST_LATENCY = """ TX depth        : 1
 local address: LID 0000 QPN 0x0002 PSN 0x2a8b07
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] 
 2       100          27.23          6195.57      1006.01  \t       1508.86     \t1297.70\t\t6195.57 \t\t6195.57
---------------------------------------------------------------------------------------
"""
PERFTEST_BANDWIDTH = """ #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      100              0.00               8.20   \t\t   0.000131
"""
STRACE = """     calls syscall
---------- ----------------
       1000 sendto
        998 recvfrom
---------- ----------------
       1998 total
"""


class Outputs(unittest.TestCase):
    def test_redis_benchmark(self):
        self.assertEqual(redis.read_rate(REDIS), 17361.11)
        with self.assertRaises(Failed):
            redis.read_rate("Error: Connection reset by peer")
        self.assertEqual(redis.read_rate('"SET","inf","0.017"'), float("inf"))
        rates = {800: float("inf"), 8000: 100_000.0}
        self.assertEqual(redis.enough_requests(rates.get, 0.5), 50_000)

    def test_wrk(self):
        self.assertEqual(nginx.read(WRK), (40049.66, 44053))
        for bad in ("  Socket errors: connect 0, read 3, write 0, timeout 0", "  Non-2xx or 3xx responses: 7"):
            with self.assertRaises(Failed):
                nginx.read(WRK.replace("Requests/sec", f"{bad}\nRequests/sec"))
        with self.assertRaises(Failed):
            nginx.read("unable to connect to 127.0.0.1:8080 Connection refused")

    def test_pgbench(self):
        self.assertEqual(postgres.read(PGBENCH), (19184.652278, 800))
        with self.assertRaises(Failed):
            postgres.read(PGBENCH.replace("failed transactions: 0", "failed transactions: 3"))
        with self.assertRaises(Failed):
            postgres.read(PGBENCH.replace("800/800", "0"))

    def test_iperf3(self):
        self.assertEqual(iperf.read('{"end": {"sum_received": {"bits_per_second": 2.5e10, "bytes": 3000000}}}'), (25.0, 3000000))
        with self.assertRaises(Failed):
            iperf.read('{"start": {}, "error": "unable to connect to server"}')

    def test_ucx_perftest(self):
        self.assertEqual(peers.read_ucx(UCX, 0.5), {"p50_us": 0.31, "gbit_s": 8.388608, "cpu_us": 250.0})
        with self.assertRaises(Failed):
            peers.read_ucx("Error: no such transport", 0)

    def test_fi_pingpong(self):
        self.assertEqual(peers.read_fabric(FABRIC), {"p50_us": 21.23})
        with self.assertRaises(Failed):
            peers.read_fabric("[error] util/pingpong.c:1119: cq_readerr: Transport endpoint is not connected")

    def test_perftest(self):
        latency, bandwidth = ({"test": f"send-{metric}", "size": 2, "count": 100} for metric in ("lat", "bw"))
        self.assertEqual(guest_pairs.read("siw", latency, PERFTEST_LATENCY), 1006.01)
        self.assertEqual(guest_pairs.read("siw", bandwidth, PERFTEST_BANDWIDTH), 8.2)
        for bad in ("", " Unable to init the socket connection\n"):
            with self.assertRaises(ValueError):
                guest_pairs.read("siw", latency, bad)

    def test_ddp_perf(self):
        line = '{"test": "send-lat", "bytes": 2, "iterations": 100, "t_typical_us": 3.5}'
        self.assertEqual(guest_pairs.read("ddp-perf", {"test": "send-lat"}, line), 3.5)
        with self.assertRaises(ValueError):
            guest_pairs.read("ddp-perf", {"test": "send-lat"}, "")

    def test_strace(self):
        with tempfile.TemporaryDirectory() as folder:
            trace = pathlib.Path(folder) / "trace"
            trace.write_text(STRACE)
            self.assertEqual(dict(pair.read_counts(trace)), {"sendto": 1000, "recvfrom": 998})
            self.assertEqual(dict(pair.read_counts(trace.with_name("none"))), {})


if __name__ == "__main__":
    unittest.main()
