# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs cases.py in the lab's guest: perftest over siw at the near end of a cable, ddp-perf in a namespace at the far one.

    in_guest.py DDP_PERF

Leaves a capture of each group and results.json: what every program printed and how it ended. The host judges both.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "lab"), str(ROOT / "tools")]

import cases
import ports
import scene

START_SECONDS = 20
RUN_SECONDS = 60


class Program:
    """One that runs; its output goes to files, so that nobody has to read it meanwhile."""

    def __init__(self, command):
        self._output, self._errors = (tempfile.TemporaryFile("w+") for _ in range(2))
        self._command = [str(c) for c in command]
        self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=self._output,
                                         stderr=self._errors)

    def wait_for(self, is_true, what):
        def is_over():
            if self._process.poll() is not None:
                raise scene.SceneError(f"{self._command} ended before {what}: {self.wait(0)}")
            return is_true()
        scene.wait_until(is_over, what, START_SECONDS)

    def has_said(self, text):
        self._errors.seek(0)
        return text in self._errors.read()

    def is_listening(self, port):
        return ports.LISTEN in ports.states(port)

    def wait(self, seconds=RUN_SECONDS):
        """Status (None: did not end, killed) and output."""
        try:
            status = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            status = None
        said = []
        for stream in (self._output, self._errors):
            stream.seek(0)
            said.append(stream.read())
        return {"status": status, "stdout": said[0], "stderr": said[1]}


def run_case(case, link, ddp_perf):
    port = cases.PORT_OF[case]
    ours = [ddp_perf, case.test, "-e", "--json", *case.options, *([] if case.has_crc else ["--no-crc"])]
    perftest = [f"ib_{case.test.replace('-', '_')}", "-R", "-F", *case.options]
    if case.is_ours_client:
        server = Program([*perftest, "-p", port])
        server.wait_for(lambda: server.is_listening(port), f"listening on port {port}")
        client = Program(link.inside([*ours, link.address, "-p", port]))
    else:
        server = Program(link.inside([*ours, "-p", port]))
        server.wait_for(lambda: server.has_said("waiting on port"), f"listening on port {port}")
        client = Program([*perftest, "-p", port, link.far_address])
    began = time.monotonic()
    ended = {"client": client.wait(), "server": server.wait()}
    print(f"{time.monotonic() - began:5.1f} s {case.name}", flush=True)
    return ended


def main():
    ddp_perf = sys.argv[1]
    results = {}
    with scene.veth() as link, scene.siw(link.device):
        def run(some):
            for case in some:
                with scene.siw_parameters(peer_to_peer="Y" if case.is_peer_to_peer else "N"):
                    results[case.name] = run_case(case, link, ddp_perf)

        with scene.capture(link.device, scene.out() / "perftest.pcap"):
            run(cases.CAPTURED)
        with scene.capture(link.device, scene.out() / "refused.pcap"):
            run(case for case in cases.EVERY if case.is_refused)
        run(case for case in cases.EVERY if case.is_sweep)
    (scene.out() / "results.json").write_text(json.dumps(results), encoding="utf-8")


if __name__ == "__main__":
    main()
