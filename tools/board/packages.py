# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Debian packages and source packages, from where apt is configured to find them."""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess

POLICY = pathlib.Path("/usr/sbin/policy-rc.d")  # asked by packages that start services
QUIET = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y"]
TAIL = 400


class NotInstalled(Exception):
    what = "could not be installed"


class NotGiven(NotInstalled):
    what = "not given"


def version(package):
    """What is installed, or None."""
    asked = subprocess.run(["dpkg-query", "-W", "-f=${db:Status-Status} ${Version}", package], capture_output=True, text=True)
    state, _, number = asked.stdout.partition(" ")
    return number if state == "installed" else None


@contextlib.contextmanager
def no_services():
    """What is installed is not started: the board starts what it runs, and ends it."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()


def apt(*arguments, cwd=None):
    """Raises with apt's last words."""
    done = subprocess.run([*QUIET, *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd=cwd)
    if done.returncode != 0:
        said = [line for line in (done.stderr + done.stdout).splitlines() if line.startswith("E:")]
        words = re.sub(r"https?://\S*/| \[IP: [^]]*\]", "", " ".join(said))  # on the page, where it came from is of no use
        raise NotInstalled(words[:TAIL] or f"apt-get {arguments[0]}: status {done.returncode}")


def apt_of_today(*arguments, cwd=None):
    """With new lists where it fails without."""
    try:
        apt(*arguments, cwd=cwd)
    except NotInstalled:
        with contextlib.suppress(NotInstalled):  # some source may be out of reach; whether that matters is seen next
            apt("update")
        apt(*arguments, cwd=cwd)


def is_there(*arguments, cwd):
    try:
        apt(*arguments, cwd=cwd)
    except NotInstalled:
        return False
    return True


def install(packages):
    """Installs those that are missing."""
    missing = [package for package in packages if version(package) is None]
    if not missing:
        return
    if os.geteuid() != 0:
        raise NotInstalled("packages are missing and this is not the superuser: " + " ".join(missing))
    with no_services():
        apt_of_today("install", "--no-install-recommends", *missing)


def source_lists():
    """apt's configured sources, asked for sources instead of programs: one line each."""
    lines = []
    etc = pathlib.Path("/etc/apt")
    for path in [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*.list"))]:
        for line in path.read_text().splitlines() if path.exists() else []:
            if re.match(r"deb(-src)?\s", line):
                lines.append(re.sub(r"^deb(-src)?", "deb-src", line))
    for path in sorted((etc / "sources.list.d").glob("*.sources")):
        for stanza in re.split(r"\n\s*\n", path.read_text()):
            fields = dict(re.findall(r"^([\w-]+):[ \t]*(.*)$", stanza, re.MULTILINE))
            if fields.get("Enabled", "yes") == "no" or "URIs" not in fields:
                continue
            signed = f"[signed-by={fields['Signed-By']}] " if fields.get("Signed-By", "").startswith("/") else ""
            for uri in fields["URIs"].split():
                for suite in fields["Suites"].split():
                    lines.append(f"deb-src {signed}{uri} {suite} {fields.get('Components', '')}".strip())
    return list(dict.fromkeys(lines))


def fetch_source(package, folder):
    """Unpacks the source package and returns where. apt's own lists are left as they are."""
    target = folder / package
    if (target / "done").exists():
        return pathlib.Path((target / "done").read_text())
    shutil.rmtree(target, ignore_errors=True)
    lists = folder / "apt"
    (lists / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    target.mkdir(parents=True)
    (lists / "sources.list").write_text("\n".join(source_lists()) + "\n")
    options = ["-o", f"Dir::Etc::SourceList={lists / 'sources.list'}", "-o", "Dir::Etc::SourceParts=/dev/null",
               "-o", f"Dir::State::Lists={lists / 'lists'}", "-o", f"Dir::Cache::SrcPkgCache={lists / 'src.bin'}",
               "-o", f"Dir::Cache::PkgCache={lists / 'pkg.bin'}", "-o", "APT::Sandbox::User=root"]
    if not any((lists / "lists").glob("*Sources*")):
        try:
            apt(*options, "update")
        except NotInstalled:
            # Some other configured source may be out of reach; whether this one is, is seen next.
            pass
    try:
        apt(*options, "source", package, cwd=target)
    except NotInstalled as newest:
        # A mirror may have the list of a version, and not the version.
        shown = subprocess.run(["apt-cache", *options, "showsrc", "--only-source", package], capture_output=True, text=True).stdout
        if not any(is_there(*options, "source", f"{package}={version}", cwd=target)
                   for version in dict.fromkeys(re.findall(r"^Version: (.*)$", shown, re.MULTILINE))):
            raise newest
    unpacked = [entry for entry in target.iterdir() if entry.is_dir()]
    if len(unpacked) != 1:
        raise NotInstalled(f"the source package {package} did not unpack")
    (target / "done").write_text(str(unpacked[0]))
    return unpacked[0]


def lay_over(packages, version, folder):
    """Unpacks the packages, those of which there is this version in it, and returns where. Nothing is installed."""
    target = folder / f"over-{packages[0]}"
    wanted = f"{version} {' '.join(packages)}"
    if (target / "done").exists() and (target / "done").read_text() == wanted:
        return target
    shutil.rmtree(target, ignore_errors=True)
    (target / "packages").mkdir(parents=True)
    for package in packages:
        known = subprocess.run(["apt-cache", "madison", package], capture_output=True, text=True).stdout
        has_it = version in [line.split("|")[1].strip() for line in known.splitlines()]
        apt_of_today("download", f"{package}={version}" if has_it else package, cwd=target / "packages")
    for package in sorted((target / "packages").glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", package, target], check=True)
    (target / "done").write_text(wanted)
    return target


def given(variable):
    """Where it is, and its version."""
    said = os.environ.get(variable)
    if not said:
        raise NotGiven(f"no package has it; {variable} is to name the folder where it is installed")
    root = pathlib.Path(said).resolve()
    if not (root / "Version").is_file():
        raise NotGiven(f"{variable} names {said}, where it is not installed")
    return str(root), (root / "Version").read_text().strip()


def source_version(unpacked):
    asked = subprocess.run(["dpkg-parsechangelog", "-S", "Version"], cwd=unpacked, capture_output=True, text=True)
    return asked.stdout.strip() or unpacked.name
