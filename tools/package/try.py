#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Installs a package into a clean Debian root and runs it there.

  try.py PACKAGE

Needs root, debootstrap, and a mirror among the system's apt sources. The root lives in a folder beside the package
while this runs; mounts and processes end with namespaces of its own.
"""

import os
import pathlib
import platform
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = HERE.parent.parent / "tests/install/program.c"
INCLUDED = "netcat-openbsd,redis-server"
EXAMPLES = ("histogram", "keyvalue")  # run by trial.sh
QUIET = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}


def run(*command, log=None):
    """Ends the program with the command's last words if it fails."""
    with open(log or os.devnull, "a", encoding="utf-8") as out:
        status = subprocess.run([str(part) for part in command], env=os.environ | QUIET, stdin=subprocess.DEVNULL,
                                stdout=out if log else None, stderr=subprocess.STDOUT if log else None).returncode
    if status != 0:
        if log:
            print("".join(open(log, encoding="utf-8").readlines()[-15:]), file=sys.stderr, end="")
        sys.exit(f"package: {command[0]} failed with status {status}" + (f"; {log} has all of it" if log else ""))


def find_mirror(suite):
    listing = subprocess.run(["apt-get", "indextargets", "--format", "$(CODENAME) $(COMPONENT) $(REPO_URI)"],
                             capture_output=True, text=True, check=True).stdout
    for line in listing.splitlines():
        codename, component, uri = line.split(" ", 2)
        if (codename, component) == (suite, "main") and uri.startswith("http"):
            return uri
    sys.exit(f"package: apt has no source for {suite} main, so no clean root can be made to try the package")


def make_root(root, log):
    suite = platform.freedesktop_os_release()["VERSION_CODENAME"]
    mirror = find_mirror(suite)
    print(f"package: making a clean {suite} root", file=sys.stderr)
    run("debootstrap", "--variant=minbase", f"--include={INCLUDED}", suite, root, mirror, log=log)


def link_programs(root):
    """With the header, library, pkg-config file and examples that are installed there, by this machine's compiler."""
    folder = next((root / "usr/lib").rglob("ddpsock.pc")).parent
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "ddpsock"], capture_output=True, text=True, check=True, env={
        **os.environ, "PKG_CONFIG_PATH": "", "PKG_CONFIG_LIBDIR": str(folder), "PKG_CONFIG_SYSROOT_DIR": str(root)})
    examples = [root / f"usr/share/doc/ddpsock/examples/{name}.c" for name in EXAMPLES]
    for source in (PROGRAM, *examples):
        run("gcc", source, "-o", root / "tmp" / source.stem, *flags.stdout.split())


def install_and_run(package, root):
    """In a mount and a process namespace of its own."""
    log = root.with_suffix(".log")
    make_root(root, log)
    run("mount", "-t", "proc", "proc", root / "proc")
    run("mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", root / "dev/shm")
    shutil.copy(package, root / "tmp")
    shutil.copy(HERE / "trial.sh", root / "tmp")
    print(f"package: installing {package.name} there", file=sys.stderr)
    run("chroot", root, "apt-get", "-q", "-y", "install", "--no-install-recommends", f"/tmp/{package.name}", log=log)
    link_programs(root)
    run("unshare", "--net", "sh", "-c", 'ip link set lo up && exec chroot "$0" sh /tmp/trial.sh', root)
    run("chroot", root, "apt-get", "-q", "-y", "purge", "ddpsock", log=log)
    left = [path for path in root.rglob("*ddpsock*") if not path.is_relative_to(root / "tmp")
            and not path.is_relative_to(root / "proc") and not path.is_relative_to(root / "dev")
            and not path.is_relative_to(root / "var")]
    if left:
        sys.exit(f"package: purging it leaves {left}")


def main():
    is_inside = sys.argv[1] == "--inside"
    package = pathlib.Path(sys.argv[-1]).resolve()
    root = package.parent / "root"
    if is_inside:
        install_and_run(package, root)
        return 0
    if os.geteuid() != 0:
        sys.exit(f"package: {package.name} is made; trying it in a clean root needs root, so that was not done")
    shutil.rmtree(root, ignore_errors=True)
    root.with_suffix(".log").unlink(missing_ok=True)
    try:
        return subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable,
                               "-B", __file__, "--inside", package]).returncode
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
