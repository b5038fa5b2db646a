#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Makes a Debian package of what a build installs, and prints its path.

  build.py BUILD OUTPUT_DIRECTORY
"""

import gzip
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SONAME_VERSION = "0"
LIBURING_COPYRIGHT = pathlib.Path("/usr/share/doc/liburing-dev/copyright")  # linked statically; its licence wants to be told
DESCRIPTION = """RDMA semantics for ordinary sockets
 Runs unmodified programs with their TCP connections carried over RDMAP, DDP
 and MPA (iWARP), on ordinary network cards and without privilege, and gives
 programs that ask for it messages, registered memory and one-sided
 operations on their sockets.
 .
 Contains the library and its header, ddprun, and tools that speak with other
 iWARP implementations."""


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{command[0]}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def compile_installed(build):
    """What is installed, and not the tests and benchmarks beside it."""
    run("ninja", "-C", build, "build.ninja")  # configures again if what is asked below has changed
    targets = json.loads(run("meson", "introspect", "--targets", build))
    files = [file for target in targets if target["installed"] for file in target["filename"]]
    jobs = os.environ.get("DEV_JOBS") or os.cpu_count()
    command = ["ninja", "-C", build, "-j", jobs, *(os.path.relpath(file, build) for file in files)]
    if subprocess.run([str(part) for part in command], stdout=sys.stderr).returncode != 0:
        sys.exit("package: the build failed")


def compress(path):
    if path.is_symlink():
        path.with_name(path.name + ".gz").symlink_to(os.readlink(path) + ".gz")
    else:
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    path.unlink()


def add_documents(tree):
    for page in list((tree / "usr/share/man").rglob("*.[0-9]")):
        compress(page)
    folder = tree / "usr/share/doc/ddpsock"
    folder.mkdir(parents=True)
    shutil.copyfile(ROOT / "README.md", folder / "README.md")
    shutil.copyfile(ROOT / "CHANGELOG.md", folder / "changelog")
    compress(folder / "changelog")
    (folder / "examples").mkdir()
    for example in [ROOT / "examples/README.md", *(ROOT / "examples").glob("*.[ch]")]:
        shutil.copyfile(example, folder / "examples" / example.name)
    licence = (ROOT / "LICENSE").read_text() + "\n" + (ROOT / "LICENSES/BSD-2-Clause.txt").read_text()
    (folder / "copyright").write_text(
        licence + "\nOn Debian systems the GNU General Public License, version 2, is in\n"
                  "/usr/share/common-licenses/GPL-2.\n\n"
                  "The library contains parts of liburing:\n\n" + LIBURING_COPYRIGHT.read_text())


def dependencies(tree):
    files = [path for path in tree.rglob("*") if path.is_file() and not path.is_symlink()]
    programs = [path for path in files if path.open("rb").read(4) == b"\x7fELF"]
    with tempfile.TemporaryDirectory() as folder:
        # It wants to be called in a source package; of that it reads no more than this.
        (pathlib.Path(folder) / "debian").mkdir()
        (pathlib.Path(folder) / "debian/control").write_text("Source: ddpsock\n\nPackage: ddpsock\nArchitecture: any\n")
        answer = run("dpkg-shlibdeps", "-O", *programs, cwd=folder)
    return next(line.split("=", 1)[1] for line in answer.splitlines() if line.startswith("shlibs:Depends="))


def write_control(tree, version, architecture):
    folder = tree / "DEBIAN"
    files = sorted(path for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    kilobytes = sum(-(-path.stat().st_size // 1024) for path in files)
    needed = dependencies(tree)
    folder.mkdir()
    fields = {
        "Package": "ddpsock", "Version": version, "Architecture": architecture, "Section": "net", "Priority": "optional",
        "Maintainer": "The ddpsock authors <ddpsock@localhost>", "Installed-Size": kilobytes, "Depends": needed,
        "Description": DESCRIPTION}
    (folder / "control").write_text("".join(f"{name}: {value}\n" for name, value in fields.items()))
    (folder / "md5sums").write_text("".join(
        f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(tree)}\n" for path in files))
    (folder / "shlibs").write_text(f"libddpsock {SONAME_VERSION} ddpsock (>= {version})\n")
    (folder / "triggers").write_text("activate-noawait ldconfig\n")


def date_of_sources():
    done = subprocess.run(["git", "-c", "safe.directory=*", "log", "-1", "--format=%ct"], cwd=ROOT,
                          capture_output=True, text=True)
    return {"SOURCE_DATE_EPOCH": done.stdout.strip()} if done.returncode == 0 else {}


def main():
    build, output = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    compile_installed(build)
    version = json.loads(run("meson", "introspect", "--projectinfo", build))["version"]
    architecture = run("dpkg", "--print-architecture").strip()
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder) / "tree"
        # TemporaryDirectory's own mode would become that of the root folder.
        tree.mkdir(mode=0o755)
        run("meson", "install", "-C", build, "--no-rebuild", "--strip", "--destdir", tree)
        add_documents(tree)
        write_control(tree, version, architecture)
        package = output / f"ddpsock_{version}_{architecture}.deb"
        run("dpkg-deb", "--root-owner-group", "--build", tree, package, env=os.environ | date_of_sources())
    print(package)


if __name__ == "__main__":
    main()
