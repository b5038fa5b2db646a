#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a guest does for a test: commands, output, files, network to the host."""

import signal
import socket
import sys
import threading
import unittest

sys.dont_write_bytecode = True

import accel
import guest
import kernel

PORT = 7174
ANSWER = """
import socket
with socket.create_server(("0.0.0.0", %d)) as s:
    print("listening", flush=True)
    with s.accept()[0] as c:
        c.sendall(b"guest:" + c.recv(100))
""" % PORT


class InOneGuest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.guest = guest.Guest("guest_test", guest.Options(forward=(PORT,), env={"GIVEN": "a value"}))
        cls.addClassCleanup(cls.guest.stop)
        cls.guest.__enter__()

    def shell(self, script, *arguments, **how):
        return self.guest.run(["/bin/sh", "-c", script, "sh", *arguments], seconds=30, **how)

    def test_boots_our_kernel_on_the_hosts_files(self):
        self.assertRegex(self.guest.run(["uname", "-r"]).stdout, rb"^6\.1\.")
        with open(__file__, "rb") as here:
            self.assertEqual(self.guest.run(["cat", __file__]).stdout, here.read())

    def test_gives_output_and_status(self):
        done = self.shell('echo "out $1"; echo err >&2; exit 3', "a  'quoted' word")
        self.assertEqual((done.status, done.stdout, done.stderr), (3, b"out a  'quoted' word\n", b"err\n"))
        with self.assertRaisesRegex(guest.GuestError, "status 3"):
            done.check()

    def test_tells_a_signal_like_a_shell(self):
        self.assertEqual(self.shell("kill -SEGV $$").status, 139)

    def test_tells_what_cannot_be_run(self):
        done = self.guest.run(["no-such-program"])
        self.assertEqual((done.status, done.stderr), (127, b"no-such-program: No such file or directory\n"))
        self.assertEqual(self.guest.run(["/etc/passwd"]).status, 126)

    def test_passes_every_byte_of_much_output(self):
        done = self.shell("head -c 3000000 /dev/zero; head -c 100000 /dev/zero >&2")
        self.assertEqual((len(done.stdout), len(done.stderr)), (3000000, 100000))

    def test_takes_directory_and_environment(self):
        done = self.shell('pwd; echo "$GIVEN,$MORE,$LAB"', cwd="/usr/share", env={"MORE": "x y"})
        self.assertEqual(done.stdout, b"/usr/share\na value,x y,1\n")

    def test_kills_at_the_time_limit_and_goes_on(self):
        with self.assertRaisesRegex(guest.TimedOut, "sleep 1000 did not end within 1 s"):
            self.guest.run(["sleep", "1000"], seconds=1)
        self.assertEqual(self.shell("pgrep -fx 'sleep 1000'").status, 1)

    def test_runs_commands_beside_each_other(self):
        slow = self.guest.start(["sleep", "1000"])
        self.assertEqual(self.shell("pgrep -fx 'sleep 1000'").status, 0)
        slow.kill()
        self.assertEqual(slow.wait(10).status, 137)

    def test_a_daemon_does_not_hold_its_parent_up(self):
        done = self.shell("setsid sleep 30 & echo started")
        self.assertEqual((done.status, done.stdout), (0, b"started\n"))
        self.assertEqual(self.shell("yes & exit 6").status, 6)
        self.shell("pkill -x yes").check()

    def test_one_that_closes_its_output_does_not_close_anothers(self):
        first = self.guest.start(["/bin/sh", "-c", "exec >&- 2>&-; kill -STOP $$"])
        stopped = self.shell("until pgrep -r T -x sh; do sleep 0.1; done")
        self.assertEqual(stopped.status, 0)
        second = self.guest.start(["/bin/sh", "-c", "echo begun; kill -STOP $$; echo more"])
        second.expect(b"begun", 20)
        first.kill()
        self.assertEqual(first.wait(20).status, 137)
        second.kill(signal.SIGCONT)
        self.assertEqual(second.wait(20).stdout, b"begun\nmore\n")

    def test_keeps_results_and_nothing_else(self):
        done = self.shell('echo kept > "$LAB_OUT/result" && echo gone > /tmp/file && cat "$LAB_OUT/result" /tmp/file')
        self.assertEqual((done.status, done.stdout), (0, b"kept\ngone\n"))
        self.assertEqual((self.guest.out / "result").read_bytes(), b"kept\n")
        self.assertNotEqual(self.shell("touch /etc/written").status, 0)
        self.assertEqual(self.shell("stat -fc %T /tmp /run /dev/shm /var/tmp | sort -u").stdout, b"tmpfs\n")

    def test_has_what_rdma_and_io_need(self):
        self.assertEqual(self.shell("ulimit -l").stdout, b"unlimited\n")
        self.assertEqual(self.shell("test -c /dev/infiniband/rdma_cm && ip -br link show lo up").status, 0)
        is_emulated = accel.choose("auto", kernel.image()) == "tcg"
        self.assertIn(self.shell("cat /sys/devices/system/clocksource/clocksource0/current_clocksource").stdout.strip(),
                      (b"hpet",) if is_emulated else (b"kvm-clock", b"tsc"))

    def test_a_program_here_reaches_one_there(self):
        server = self.guest.start(["/usr/bin/python3", "-c", ANSWER])
        server.expect(b"listening", 20)
        with socket.create_connection(("127.0.0.1", self.guest.forwarded[PORT]), timeout=20) as client:
            client.sendall(b"hello")
            self.assertEqual(client.recv(100), b"guest:hello")
        self.assertEqual(server.wait(10).status, 0)

    def test_a_program_there_reaches_one_here(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(20)
            answers = []

            def serve():
                with server.accept()[0] as client:
                    answers.append(client.recv(100))
                    client.sendall(b"host")

            thread = threading.Thread(target=serve)
            thread.start()
            program = ("import os, socket, sys; c = socket.create_connection((os.environ['LAB_HOST'], int(sys.argv[1])));"
                       "c.sendall(b'hi'); print(c.recv(100))")
            done = self.guest.run(["/usr/bin/python3", "-c", program, server.getsockname()[1]], seconds=20)
            thread.join(20)
        self.assertEqual((done.stdout, answers), (b"b'host'\n", [b"hi"]))


if __name__ == "__main__":
    guest.skip_without_kernel()
    unittest.main()
