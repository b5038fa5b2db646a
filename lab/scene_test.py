#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The scenes inside one guest: namespaces, a slow cable, siw in its roles, captures that are complete or an error."""

import os
import pathlib
import re
import socket
import subprocess
import sys
import threading
import time
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests" / "interop"))

import decode
import guest
import results
import scene

PORT = 7174
CONNECT = """
import socket, sys, time
began = time.monotonic()
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=20) as c:
    c.sendall(b"x" * int(sys.argv[3]))
    c.shutdown(socket.SHUT_WR)
    assert c.recv(1) == b""
print(time.monotonic() - began)
"""


# Each leaves a capture of this name, which is judged on the host: Wireshark is slow under emulation.
ROLES = {"upstream": {}, "crc": {"mpa_crc_required": "Y"}, "revision1": {"mpa_version": 1}, "rtr": {"peer_to_peer": "Y"}}


class Cable(unittest.TestCase):
    def send_from_far(self, link, size):
        """Seconds from connecting there to the end of it, with `size` bytes received here."""
        received = []
        with socket.create_server((link.address, 0)) as server:
            server.settimeout(20)

            def serve():
                with server.accept()[0] as one:
                    received.append(sum(len(data) for data in iter(lambda: one.recv(65536), b"")))

            thread = threading.Thread(target=serve)
            thread.start()
            command = ["/usr/bin/python3", "-c", CONNECT, link.address, server.getsockname()[1], size]
            took = float(scene.step(*link.inside(command)))
            thread.join(20)
        self.assertEqual(received, [size])
        return took

    def test_delay_is_there_and_gone_again(self):
        with scene.veth() as link:
            with scene.netem(link.device, "delay", "300ms"):
                # The handshake and the end each cross it once.
                self.assertGreaterEqual(self.send_from_far(link, 10), 0.6)
            self.assertNotIn("netem", scene.step("tc", "qdisc", "show", "dev", link.device))
            with scene.netem(link.far_device, "delay", "1ms", namespace=link.namespace):
                self.assertEqual(scene.step("tc", "qdisc", "show", "dev", link.device).count("netem"), 0)

    def test_leaves_a_capture_of_segments_as_on_a_wire(self):
        with scene.veth(mtu=4000) as link, scene.capture(link.device, scene.out() / "mtu.pcap"):
            self.send_from_far(link, 200000)

    def test_the_namespace_and_the_cable_are_gone_afterwards(self):
        with scene.veth(2) as link:
            self.assertIn(link.device, os.listdir("/sys/class/net"))
        scene.wait_until(lambda: link.device not in os.listdir("/sys/class/net"), "the device is gone")
        self.assertEqual(scene.step("ip", "netns", "list"), "")

    def test_what_does_not_work_is_told(self):
        with self.assertRaisesRegex(scene.SceneError, "tc qdisc add dev nosuch"):
            with scene.netem("nosuch", "delay", "1ms"):
                pass
        with self.assertRaisesRegex(scene.SceneError, "no-such-program"):
            scene.step("no-such-program")
        with self.assertRaisesRegex(scene.SceneError, "never: not within 0.1 s"):
            scene.wait_until(lambda: False, "never", 0.1)


class Siw(unittest.TestCase):
    def ping(self, name, **parameters):
        """siw talks to siw, captured on lo, where a host's talk with itself goes."""
        with scene.veth() as link, scene.siw(link.device), scene.siw_parameters(**parameters), \
                scene.netem("lo", "delay", "20ms"), scene.capture("lo", scene.out() / f"{name}.pcap"):
            # One Send each way, the client's first as iWARP demands. ucmatose's server sends first, which siw may refuse,
            # and rping needs a Read, which siw's responder does not allow in revision 1.
            server = subprocess.Popen(["rdma_server", "-p", str(PORT)], stdout=subprocess.DEVNULL)
            try:
                scene.wait_until_listening(PORT)
                client = subprocess.run(["rdma_client", "-s", link.address, "-p", str(PORT)], capture_output=True, text=True,
                                        timeout=30)
                self.assertEqual((client.returncode, server.wait(20)), (0, 0), client)
            finally:
                server.kill()
                server.wait()

    def test_plays_its_roles(self):
        for name, parameters in ROLES.items():
            with self.subTest(name):
                self.ping(name, **parameters)

    def test_parameters_are_put_back(self):
        read = lambda: {p.name: p.read_text(encoding="ascii") for p in scene.PARAMETERS.iterdir()}
        before = read()
        with scene.siw_parameters(mpa_crc_required="Y", mpa_version=1):
            self.assertNotEqual(read(), before)
        self.assertEqual(read(), before)
        with self.assertRaisesRegex(scene.SceneError, "no parameter nonsense; it has: .*mpa_version"):
            with scene.siw_parameters(mpa_version=1, nonsense=1):
                pass
        self.assertEqual(read(), before)


class Capture(unittest.TestCase):
    def test_one_that_stays_empty_is_an_error(self):
        with self.assertRaisesRegex(scene.SceneError, "capture of lo stayed empty"):
            with scene.capture("lo", scene.out() / "empty.pcap"):
                pass

    def test_one_that_cannot_start_is_an_error(self):
        began = time.monotonic()
        with self.assertRaisesRegex(scene.SceneError, "dumpcap ended at once: .*nosuch"):
            with scene.capture("nosuch", scene.out() / "none.pcap"):
                self.fail("it was said to have started")
        self.assertLess(time.monotonic() - began, 10)

    def test_a_failure_inside_is_not_hidden(self):
        with self.assertRaisesRegex(ZeroDivisionError, "mine"):
            with scene.capture("lo", scene.out() / "failed.pcap"):
                raise ZeroDivisionError("mine")


class OnTheHost(unittest.TestCase):
    """What the guest's captures show."""

    def path(self, name):
        return str(results.RESULTS / "scene_test" / "out" / f"{name}.pcap")

    def fields(self, name, field):
        done = subprocess.run(["tshark", "-r", self.path(name), "-T", "fields", "-e", field], capture_output=True,
                              text=True, timeout=60)
        return done.stdout.split()

    def test_segments_have_the_size_of_the_wire(self):
        self.assertEqual(max(map(int, self.fields("mtu", "ip.len"))), 4000)

    def test_siw_is_revision_2_without_crc_upstream(self):
        [connection] = decode.check(self.path("upstream"), PORT, crc=False).connections
        self.assertEqual(connection.to_server.revision, 2)

    def test_siw_uses_crc_when_told(self):
        self.assertGreater(decode.check(self.path("crc"), PORT, crc=True).crc_good, 0)

    def test_siw_speaks_revision_1_when_told(self):
        [connection] = decode.check(self.path("revision1"), PORT, crc=False).connections
        self.assertEqual(connection.to_server.revision, 1)

    def test_siw_offers_rtr_when_told(self):
        # Key, flags with S, revision 2, length; A and IRD; both RTRs and ORD.
        request = re.compile(b"MPA ID Req Frame".hex() + "1002....[89ab]...[c-f]...")
        self.assertEqual(sum(bool(request.match(p)) for p in self.fields("rtr", "tcp.payload")), 1)
        self.assertEqual(sum(bool(request.match(p)) for p in self.fields("upstream", "tcp.payload")), 0)


if __name__ == "__main__":
    if os.environ.get("LAB") == "1":
        unittest.main(defaultTest=["Cable", "Siw", "Capture"])
    status = guest.run_inside(__file__, "scene_test")
    if status:
        sys.exit(status)
    unittest.main(defaultTest="OnTheHost")
