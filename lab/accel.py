# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""KVM or emulation. /dev/kvm may exist and still not run a kernel, so a short boot decides, once per boot of the host."""

import json
import os
import pathlib
import subprocess
import tempfile

import kernel
import qemu

PROBE_SECONDS = 5
# The end of a kernel that has booted and was given nothing to run.
MARKER = b"Kernel panic - not syncing"


def choose(wanted, image):
    """"kvm" or "tcg" for `wanted`, which is one of these or "auto"."""
    if wanted != "auto":
        return wanted
    return "kvm" if is_kvm_usable(image) else "tcg"


def _boot_id():
    return pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def is_kvm_usable(image):
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    asked = {"boot": _boot_id(), "kernel": str(image), "user": os.geteuid()}
    answer_file = kernel.cache() / f"kvm-{os.geteuid()}.json"
    try:
        known = json.loads(answer_file.read_text(encoding="ascii"))
        if known["asked"] == asked:
            return known["is_usable"]
    except (OSError, ValueError, KeyError, TypeError):
        pass  # no answer, or none that can be read: ask
    is_usable = probe(image)
    answer_file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=answer_file.parent, delete=False, encoding="ascii") as f:
        json.dump({"asked": asked, "is_usable": is_usable}, f)
    os.replace(f.name, answer_file)
    return is_usable


def probe(image, seconds=PROBE_SECONDS, accel="kvm"):
    """Whether this kernel gets as far as missing its init within `seconds`."""
    command = [qemu.PROGRAM, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-machine", "q35",
               "-accel", qemu.ACCEL[accel], "-cpu", qemu.CPU[accel], "-smp", "2", "-m", "256", "-kernel", str(image),
               "-append", "console=ttyS0 no_timer_check panic=-1 reboot=t", "-serial", "stdio"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              timeout=seconds, preexec_fn=qemu.dies_with(os.getpid()))
    except (subprocess.TimeoutExpired, OSError):
        return False
    return MARKER in done.stdout
