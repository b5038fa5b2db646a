# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs that have to fail, and what ddp-rping has to say about it. Played in the guest, judged on the host."""

import contextlib
import dataclasses
import signal

import scene

NAME, MTU = "failures", 1500
# A port a scenario, so that the capture tells them apart.
FIRST_PORT = 7200
TIMEOUT = 5  # of ddp-rping, for each step
# A program's whole life: until some pings are through, that step, and closing.
LIMIT = TIMEOUT + 20
RPING_SECONDS = 10
KILLED = -signal.SIGKILL


@dataclasses.dataclass(frozen=True)
class Scenario:
    name: str
    play: object  # starts what a Pair needs, and does the harm
    says: str = ""  # ours, on standard error; a pattern
    status: int = 1
    # Whether rping is told of the end. Then it is killed: it has no timeouts, and even after "DISCONNECT EVENT" it now
    # and then waits for ever for its own thread.
    does_rping_notice: bool = True
    is_connected: bool = True


class Pair:
    """The two programs of one scenario."""

    def __init__(self, run, port):
        self._run, self._port = run, port
        self.ours = self.rping = None

    def our_client(self, *options):
        self.ours = self._run.ours("-c", "-V", "-v", "-d", "-a", self._run.link.address, "-p", self._port,
                                   "--timeout", TIMEOUT, *options)

    def our_server(self, *options):
        self.ours = self._run.our_server("-V", "-v", "-p", self._port, "--timeout", TIMEOUT, "-C", 10**6, *options)

    def rping_server(self, size=64):
        self.rping = self._run.rping("-s", "-a", self._run.link.address, "-p", self._port, "-S", size)
        self.rping.wait_until_listening(self._port)

    def rping_client(self, *options):
        self.rping = self._run.rping("-c", "-a", self._run.link.far_address, "-p", self._port, *options)

    def start(self, is_ours_client, *options):
        """Pings without end, of which some are through on return."""
        if is_ours_client:
            self.rping_server()
            self.our_client(*options)
        else:
            self.our_server(*options)
            self.rping_client()
        self.ours.wait_for_line("stdout", "rdma-ping-5:")

    def break_cable(self, stack):
        for device, namespace in ((self._run.link.device, None), (self._run.link.far_device, self._run.link.namespace)):
            stack.enter_context(scene.netem(device, "loss", "100%", namespace=namespace))

    def end(self, does_rping_notice=True):
        """Waits for both; ours first, which must not need rping for it."""
        ours = self.ours.wait(LIMIT)
        if self.rping and not does_rping_notice:
            self.rping.signal(signal.SIGKILL)
        return {"ours": ours, "rping": self.rping.wait(RPING_SECONDS) if self.rping else None}


def rping_has_too_little_room(pair):
    pair.rping_server(64)
    pair.our_client("-C", 1, "-S", 5000)


def rping_offers_too_much(pair):
    pair.our_server("-S", 64)
    pair.rping_client("-C", 1, "-S", 4000)


def nobody_listens(pair):
    pair.our_client("-C", 1)


def rping_reads_nothing_in_revision_1(pair):
    pair.rping_server()
    pair.our_client("-C", 1, "--mpa-rev", 1)


def _signal(is_ours_client, who, number):
    def play(pair):
        pair.start(is_ours_client)
        getattr(pair, who).signal(number)
    return play


SCENARIOS = (
    # First, because their ends are a long time coming.
    Scenario("the rping client stalls", _signal(False, "rping", signal.SIGSTOP),
             rf"waiting for the client's s\w+: nothing came within {TIMEOUT} s", does_rping_notice=False),
    Scenario("the rping server stalls", _signal(True, "rping", signal.SIGSTOP),
             rf"waiting for the server's RDMA \w+: nothing came within {TIMEOUT} s", does_rping_notice=False),
    Scenario("the rping server has too little room", rping_has_too_little_room,
             "ping 0: (the server closed before|waiting for) the server's RDMA Read"),
    Scenario("the rping client offers too much", rping_offers_too_much,
             "ping 0: the client advertises 4000 bytes to read, and -S allows 64"),
    Scenario("nobody listens", nobody_listens, "connecting: Connection refused; is the server running",
             is_connected=False),
    # Revision 1 carries no depths, and rdma_accept() of rping's server takes that for an ORD of 0. So it is between two
    # rpings over siw.
    Scenario("rping's server reads nothing in revision 1", rping_reads_nothing_in_revision_1,
             "MPA revision 1, CRC on(.|\\n)*ping 0: the server closed before the server's RDMA Read was done"),
    Scenario("the rping client is killed", _signal(False, "rping", signal.SIGKILL),
             r"closed after \d+ pings, expected 1000000|ping \d+: .*(closed|lost|Terminate)"),
    Scenario("the rping server is killed", _signal(True, "rping", signal.SIGKILL), r"ping \d+: .*(closed|lost|Terminate)"),
    Scenario("our client is killed", _signal(True, "ours", signal.SIGKILL), status=KILLED),
    Scenario("our server is killed", _signal(False, "ours", signal.SIGKILL), status=KILLED),
)
CABLE = Scenario("the cable breaks", None, rf"ping \d+: .*nothing came within {TIMEOUT} s", does_rping_notice=False)
EVERY = (*SCENARIOS, CABLE)
# Of those that the capture must show as DDP.
PORTS = {FIRST_PORT + number for number, scenario in enumerate(EVERY) if scenario.is_connected}


def run_all(run):
    """What became of each scenario, by name."""
    pairs = [(scenario, Pair(run, FIRST_PORT + number)) for number, scenario in enumerate(SCENARIOS)]
    for scenario, pair in pairs:
        scenario.play(pair)
    results = {scenario.name: pair.end(scenario.does_rping_notice) for scenario, pair in pairs}
    # Alone and last, because what TCP sends again afterwards would disturb others.
    with contextlib.ExitStack() as stack:
        pair = Pair(run, FIRST_PORT + len(SCENARIOS))
        pair.start(True)
        pair.break_cable(stack)
        results[CABLE.name] = pair.end(CABLE.does_rping_notice)
    return results
