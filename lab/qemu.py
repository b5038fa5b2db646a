# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""QEMU's command line for one guest, and its process."""

import ctypes
import dataclasses
import os
import pathlib
import shutil
import signal
import subprocess

PROGRAM = "qemu-system-x86_64"
INIT = pathlib.Path(__file__).resolve().parent / "guest" / "init.py"
# What virtio-9p moves at most.
MSIZE = 512000
STOP_SECONDS = 5
PR_SET_PDEATHSIG = 1
CPU = {"tcg": "max", "kvm": "host"}
ACCEL = {"tcg": "tcg,thread=multi", "kvm": "kvm"}


libc = ctypes.CDLL(None)


class QemuError(Exception):
    """QEMU is missing or cannot be told what is wanted."""


@dataclasses.dataclass
class Share:
    """A folder of the host that the guest sees at the same path, besides the root, which it cannot write."""
    path: pathlib.Path
    is_writable: bool = False
    tag: str = ""


@dataclasses.dataclass
class Link:
    """A network card. `netdev` is QEMU's backend without its id."""
    netdev: str
    mac: str
    capture: pathlib.Path | None = None
    mtu: int = 1500


@dataclasses.dataclass
class Machine:
    kernel: pathlib.Path
    accel: str
    cpus: int
    memory_mb: int
    console: pathlib.Path | None  # None: the terminal of the caller
    port_fd: int  # a connected stream socket that carries wire.py's frames
    monitor_fd: int
    shares: list = dataclasses.field(default_factory=list)
    links: list = dataclasses.field(default_factory=list)
    inherited: list = dataclasses.field(default_factory=list)


def _option(**fields):
    """QEMU's key=value list; a comma in a value is written twice."""
    return ",".join(f"{name}={str(value).replace(',', ',,')}" for name, value in fields.items())


def _append(accel):
    if any(c in str(INIT) for c in " \t\n\"'"):
        raise QemuError(f"the kernel's command line cannot carry the path {INIT}")
    return " ".join([
        "console=ttyS0", "quiet", "loglevel=5",
        "root=host", "rootfstype=9p", f"rootflags=trans=virtio,version=9p2000.L,msize={MSIZE},cache=loose", "ro",
        # An end of init or an oops ends QEMU at once: -no-reboot.
        "panic=-1", "oops=panic", "reboot=t",
        # QEMU's TSCs agree; on a busy host the timer would fail its check.
        "tsc=reliable", "no_timer_check", "mitigations=off", "random.trust_cpu=on",
        # Emulated, the kernel measures its TSC while it boots, and on a busy host may find a hundredth of what it is: its clock
        # then runs a hundred times too fast. (KVM tells the rate.) The HPET has its rate written on it; a read of it is an exit, a
        # microsecond.
        *(["clocksource=hpet"] if accel == "tcg" else []),
        "init=/usr/bin/python3", "--", "-I", "-S", "-B", str(INIT)])


def command(machine):
    args = [PROGRAM, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-machine", "q35", "-accel", ACCEL[machine.accel], "-cpu", CPU[machine.accel],
            "-smp", str(machine.cpus), "-m", str(machine.memory_mb),
            "-kernel", str(machine.kernel), "-append", _append(machine.accel),
            "-device", "virtio-rng-pci", "-device", "virtio-serial-pci",
            "-chardev", f"socket,id=port,fd={machine.port_fd}", "-device", "virtserialport,chardev=port,name=lab",
            "-chardev", f"socket,id=monitor,fd={machine.monitor_fd}", "-mon", "chardev=monitor,mode=control"]
    if machine.console is None:
        args += ["-chardev", "stdio,id=console,signal=off"]
    else:
        args += ["-chardev", "file," + _option(id="console", path=machine.console)]
    args += ["-serial", "chardev:console"]
    for share in [Share(pathlib.Path("/"), tag="host"), *machine.shares]:
        args += ["-fsdev", "local," + _option(id=share.tag, path=share.path, security_model="none", multidevs="remap",
                                              readonly="off" if share.is_writable else "on"),
                 "-device", f"virtio-9p-pci,fsdev={share.tag},mount_tag={share.tag}"]
    for number, link in enumerate(machine.links):
        args += ["-netdev", f"{link.netdev},id=net{number}",
                 "-device", f"virtio-net-pci,netdev=net{number},mac={link.mac},host_mtu={link.mtu},romfile="]
        if link.capture:
            args += ["-object", "filter-dump," + _option(id=f"dump{number}", netdev=f"net{number}", file=link.capture,
                                                         maxlen=65536)]
    return args


def check():
    if not shutil.which(PROGRAM):
        raise QemuError(f"{PROGRAM} is not installed; ./dev lab build installs it")


def start(machine, errors):
    """Starts QEMU; what it says itself goes to the open file `errors`."""
    check()
    return subprocess.Popen(command(machine), stdin=subprocess.DEVNULL if machine.console else None,
                            stdout=errors if machine.console else None, stderr=errors, preexec_fn=dies_with(os.getpid()),
                            pass_fds=(machine.port_fd, machine.monitor_fd, *machine.inherited))


def dies_with(parent):
    """For a new process, before its program begins: it must not outlive the thread that started it, however that ends."""
    def tie():
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
    return tie


def stop(process):
    """Nothing of the guest is lost: its files are the host's files, its captures are written as they happen."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
