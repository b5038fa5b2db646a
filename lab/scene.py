# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What programs inside the guest set their scene with: siw, namespaces, veth, netem, captures, a meeting of two guests.

    with scene.veth() as link, scene.siw(link.device), scene.siw_parameters(mpa_crc_required="Y"):
        with scene.capture(link.device, scene.out() / "case.pcap"):
            server = subprocess.Popen(["rping", "-s", "-a", link.address, ...])
            subprocess.run(link.inside(["./our_client", link.address]), check=True, timeout=30)

siw serves devices of the initial network namespace only, so siw has the near end of the pair and our program the far
one, in a namespace of its own. For siw against siw both programs use link.address; that traffic is captured on `lo`.

siw's responder hands its socket over to the stream only after its Reply has left, and is not told of an FPDU that comes
in between: it lies there until more arrives. On a link without delay, on busy processors, that happens about once in
fifty connections; netem(device, "delay", "20ms") on the initiator's end gives siw its time.
"""

import array
import contextlib
import dataclasses
import fcntl
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "tools"))

import ports

STEP_SECONDS = 20
CAPTURE_SECONDS = 30
PARAMETERS = pathlib.Path("/sys/module/siw/parameters")
SEND_BUFFERS = pathlib.Path("/proc/sys/net/ipv4/tcp_wmem")
# More than a case has under way. Where a send buffer runs full, siw's poster and its thread may both be inside its
# sender, and the FPDU gets a wrong CRC or the connection a reset (doc/interop.md).
SIW_SEND_BUFFER = 16 << 20


class SceneError(Exception):
    """The scene could not be set."""


def require_guest():
    """Refuses to touch a machine that is not the lab's."""
    if os.environ.get("LAB") != "1":
        raise SceneError("this runs in the lab's guest only: ./dev lab run")


def out():
    """The folder that the host keeps."""
    return pathlib.Path(os.environ["LAB_OUT"])


def step(*command, text=""):
    """Runs one command of the scene with `text` as its input; its output. SceneError says what failed."""
    require_guest()
    told = " ".join(map(str, command))
    try:
        process = subprocess.Popen([str(c) for c in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
    except OSError as error:
        raise SceneError(f"{told}: {error}") from None
    try:
        output, errors = process.communicate(text, STEP_SECONDS)
    except subprocess.TimeoutExpired:
        # Not waited for: what hangs inside the kernel, such as the removal of a device in use, cannot be killed.
        process.kill()
        raise SceneError(f"{told}: did not end within {STEP_SECONDS} s") from None
    if process.returncode != 0:
        raise SceneError(f"{told}: status {process.returncode}: {(errors + output).strip()}")
    return output


def ip(lines, namespace=None):
    """Several commands of ip, in one process."""
    return step("ip", *(["-n", namespace] if namespace else []), "-batch", "-", text="\n".join(lines) + "\n")


def wait_until(is_true, what, seconds=STEP_SECONDS):
    deadline = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > deadline:
            raise SceneError(f"{what}: not within {seconds:g} s")
        time.sleep(0.02)


def wait_until_listening(port, seconds=STEP_SECONDS):
    """Until a socket of the initial namespace listens on the TCP port; siw's do it as programs' do."""
    wait_until(lambda: ports.LISTEN in ports.states(port), f"port {port} is listened on", seconds)


# siw.

def _text_of(path):
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""


@contextlib.contextmanager
def roomy_send_buffers():
    """For TCP sockets made in the block, in this network namespace."""
    require_guest()
    before = SEND_BUFFERS.read_text(encoding="ascii")
    SEND_BUFFERS.write_text(f"4096 {SIW_SEND_BUFFER} {SIW_SEND_BUFFER}", encoding="ascii")
    try:
        yield
    finally:
        SEND_BUFFERS.write_text(before, encoding="ascii")


@contextlib.contextmanager
def siw(device, name=None):
    """An RDMA device of siw's on a network device, with send buffers that siw does not fill; the name of it."""
    with roomy_send_buffers(), _siw(device, name or f"siw_{device}") as made:
        yield made


@contextlib.contextmanager
def _siw(device, name):
    step("rdma", "link", "add", name, "type", "siw", "netdev", device)
    try:
        port = pathlib.Path("/sys/class/infiniband") / name / "ports/1"
        wait_until(lambda: "ACTIVE" in _text_of(port / "state"), f"{name} is active")
        # The kernel fills its table of addresses later; until then rdma_bind_addr knows no such device.
        wait_until(lambda: _text_of(port / "gids/0").strip("0:\n"), f"{name} has an address")
        yield name
    finally:
        step("rdma", "link", "delete", name)


@contextlib.contextmanager
def siw_parameters(**values):
    """Sets siw's parameters (siw_edit.py lists them) for connections made in the block, then puts the old ones back."""
    require_guest()
    before = {}
    try:
        for name, value in values.items():
            path = PARAMETERS / name
            if not path.exists():
                raise SceneError(f"siw has no parameter {name}; it has: {sorted(p.name for p in PARAMETERS.iterdir())}")
            before[path] = path.read_text(encoding="ascii").strip()
            path.write_text(str(value), encoding="ascii")
        yield
    finally:
        for path, value in before.items():
            path.write_text(value, encoding="ascii")


# Namespaces, links.

@dataclasses.dataclass
class Link:
    """A veth pair. Near end: initial namespace, `device`, `address`. Far end: namespace, far_device, far_address."""
    namespace: str
    device: str
    far_device: str
    address: str
    far_address: str
    address6: str
    far_address6: str

    def inside(self, command):
        """`command` as it is run at the far end."""
        return ["ip", "netns", "exec", self.namespace, *map(str, command)]


@contextlib.contextmanager
def veth(number=1, mtu=1500, has_offloads=False):
    """Two ends of a cable, the far one in a namespace of its own. `number` tells several apart.

    Without offloads a capture shows the segments and checksums that a wire would.
    """
    link = Link(f"far{number}", f"near{number}", f"far{number}", f"10.7.{number}.1", f"10.7.{number}.2",
                f"fd07:{number}::1", f"fd07:{number}::2")
    # A program's start is slow under emulation, so that few are started.
    ip([f"netns add {link.namespace}",
        f"link add {link.device} mtu {mtu} type veth peer name {link.far_device} mtu {mtu}"])
    try:
        if not has_offloads:
            switch_offloads_off(link.device)
            switch_offloads_off(link.far_device)
        ip([f"address add {link.address}/24 dev {link.device}",
            f"address add {link.address6}/64 dev {link.device} nodad",
            f"link set {link.device} up",
            f"link set {link.far_device} netns {link.namespace}"])
        ip([f"address add {link.far_address}/24 dev {link.far_device}",
            f"address add {link.far_address6}/64 dev {link.far_device} nodad",
            f"link set {link.far_device} up",
            "link set lo up"], link.namespace)
        yield link
    finally:
        step("ip", "netns", "delete", link.namespace)


SIOCETHTOOL = 0x8946
# ETHTOOL_STSO, SGSO, SGRO, STXCSUM: what makes a capture differ from a wire.
OFFLOADS = (0x1f, 0x24, 0x2c, 0x17)


def switch_offloads_off(device):
    require_guest()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for command in OFFLOADS:
            value = array.array("I", [command, 0])
            fcntl.ioctl(control, SIOCETHTOOL, struct.pack("=16sQ16x", device.encode(), value.buffer_info()[0]))


@contextlib.contextmanager
def netem(device, *how, namespace=None):
    """What leaves `device` suffers: netem(link.device, "delay", "20ms", "loss", "1%")."""
    where = ["-n", namespace] if namespace else []
    step("tc", *where, "qdisc", "add", "dev", device, "root", "netem", *how)
    try:
        yield
    finally:
        step("tc", *where, "qdisc", "delete", "dev", device, "root")


# Captures.

DROPPED = re.compile(r"packets received/dropped on interface .*?: (\d+)/(\d+) \(pcap:(\d+)/dumpcap:(\d+)", re.IGNORECASE)


@contextlib.contextmanager
def capture(device, path, what="tcp"):
    """Every packet of `device` that matches the filter `what` is in the file when the block has been left.

    SceneError if dumpcap does not start, loses a packet, or (unless the block failed) captured nothing.
    """
    require_guest()
    path = pathlib.Path(path)
    path.unlink(missing_ok=True)
    dumpcap = subprocess.Popen(["dumpcap", "-q", "-P", "-i", device, "-s", "0", "-B", "64", "-f", what, "-w", str(path)],
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        # With -P the header appears as soon as capturing has begun.
        wait_until(lambda: dumpcap.poll() is not None or (path.exists() and path.stat().st_size > 0),
                   "dumpcap starts", CAPTURE_SECONDS)
        if dumpcap.poll() is not None:
            raise SceneError(f"dumpcap ended at once: {dumpcap.communicate()[1].strip()}")
        yield path
        _wait_until_written(path)
    finally:
        dumpcap.send_signal(signal.SIGINT)
        try:
            messages = dumpcap.communicate(timeout=CAPTURE_SECONDS)[1]
        except subprocess.TimeoutExpired:
            dumpcap.kill()
            messages = dumpcap.communicate()[1]
    counts = DROPPED.search(messages)
    if not counts:
        raise SceneError(f"dumpcap did not say what it dropped: {messages.strip()}")
    if any(int(n) for n in counts.groups()[1:]):
        raise SceneError(f"the capture lost packets: {counts[0]}")
    if int(counts[1]) == 0:
        raise SceneError(f"the capture of {device} stayed empty: {path}")


def _wait_until_written(path):
    """Packets reach the file in batches; once it has not grown for a while, the last batch is there."""
    size, since = -1, time.monotonic()
    deadline = since + CAPTURE_SECONDS
    while time.monotonic() < deadline and time.monotonic() - since < 0.5:
        now = path.stat().st_size
        if now != size:
            size, since = now, time.monotonic()
        time.sleep(0.05)


# Two guests.

def number():
    """1 or 2 in a guest on a segment."""
    return int(os.environ["LAB_GUEST"])


def meet(what, seconds=60):
    """Returns once both guests have come to `what`."""
    require_guest()
    for one in (number(), 3 - number()):
        mark = out() / f".meet-{what}-{one}"
        if one == number():
            mark.touch()
        else:
            wait_until(mark.exists, f"guest {one} comes to {what}", seconds)

