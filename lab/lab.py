#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`./dev lab`: builds the guest's kernel, runs a program of this host in a guest, opens a shell in one.

`run` ends with the program's own status (128 + n when signal n ended it; of two guests the first that is not 0), or with
239 no kernel, no QEMU or the results in use; 240 the guest never booted; 241 its kernel panicked; 242 the time limit has
passed; 243 QEMU ended. Those are also told on standard error, with the end of the guest's console.
"""

import argparse
import os
import pathlib
import shutil
import sys
import termios
import tty

import guest
import kernel
import qemu
import results
import segment

UNUSABLE = 239
GRACE_SECONDS = 10


def say(text):
    print(f"lab: {text}", file=sys.stderr, flush=True)


def port_number(text):
    number = int(text)
    if not 0 < number < 65536:
        raise argparse.ArgumentTypeError(f"{number} is no TCP port")
    return number


def assignment(text):
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=VALUE")
    return name, value


def positive(text):
    number = float(text)
    if not 0 < number < 1e6:
        raise argparse.ArgumentTypeError(f"{text} is out of range")
    return number


def parse(arguments):
    parser = argparse.ArgumentParser(prog="./dev lab", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="build the guest's kernel unless it is cached")
    build.add_argument("--jobs", type=int, default=os.cpu_count())
    machine = argparse.ArgumentParser(add_help=False)
    machine.add_argument("--cpus", type=int, default=2)
    machine.add_argument("--memory", type=int, default=1024, metavar="MB")
    machine.add_argument("--accel", choices=["auto", "kvm", "tcg"], default="auto")
    machine.add_argument("--host-net", action="store_true",
                         help="a network to this host, which is 10.0.2.2 there and serves its own 127.0.0.1")
    machine.add_argument("--forward", type=port_number, action="append", default=[], metavar="PORT",
                         help="make the guest's TCP port reachable on this host's 127.0.0.1; implies --host-net")
    machine.add_argument("--share", type=pathlib.Path, action="append", default=[], metavar="FOLDER",
                         help="show also this folder, which lies where the guest has its own (/tmp, /run, /dev/shm)")
    machine.add_argument("--env", type=assignment, action="append", default=[], metavar="NAME=VALUE")
    machine.add_argument("--boot-timeout", type=positive, default=guest.BOOT_SECONDS, metavar="SECONDS")
    machine.add_argument("--name", default=None, help="where in build/lab the results go (default: run, shell)")
    run = commands.add_parser("run", parents=[machine], help="run a program or shell script of this host in a guest")
    run.add_argument("--timeout", type=positive, default=guest.RUN_SECONDS, metavar="SECONDS")
    run.add_argument("--guests", type=int, choices=[1, 2], default=1,
                     help="2: both run it, with LAB_GUEST=1 or 2, LAB_ADDRESS and LAB_PEER")
    run.add_argument("script")
    run.add_argument("arguments", nargs=argparse.REMAINDER)
    commands.add_parser("shell", parents=[machine], help="an interactive guest; exit ends it")
    return parser.parse_args(arguments)


def options_of(args, shares):
    if args.cpus < 1 or args.memory < 128:
        raise guest.GuestError("a guest needs a processor and 128 MB")
    return guest.Options(cpus=args.cpus, memory_mb=args.memory, accel=args.accel, boot_seconds=args.boot_timeout,
                         forward=tuple(args.forward), has_host_net=args.host_net, share=tuple(args.share + shares),
                         env=dict(args.env))


def find_script(name):
    path = pathlib.Path(name)
    if not path.exists() and "/" not in name and shutil.which(name):
        path = pathlib.Path(shutil.which(name))
    if not path.is_file():
        raise guest.GuestError(f"there is no file {name}")
    return path.absolute()


def argv_in(path, out, arguments):
    if not results.can_be_seen(path.parent):
        shutil.copy(path, out / path.name)
        path = out / path.name
    return [*([] if os.access(path, os.X_OK) else ["/bin/sh"]), str(path), *arguments]


class Printer:
    """Passes a command's output on at once; with two guests a line at a time, with the guest's number before it."""

    def __init__(self, number=None):
        self._mark = f"[{number}] ".encode() if number else b""
        self._rest = {False: b"", True: b""}

    def __call__(self, is_stderr, data):
        if not self._mark:
            self._write(is_stderr, data)
            return
        *lines, self._rest[is_stderr] = (self._rest[is_stderr] + data).split(b"\n")
        self._write(is_stderr, b"".join(self._mark + line + b"\n" for line in lines))

    def finish(self):
        for is_stderr, rest in self._rest.items():
            if rest:
                self._write(is_stderr, self._mark + rest + b"\n")

    @staticmethod
    def _write(is_stderr, data):
        stream = (sys.stderr if is_stderr else sys.stdout).buffer
        stream.write(data)
        stream.flush()


def cmd_run(args):
    path = find_script(args.script)
    cwd = pathlib.Path.cwd()
    options = options_of(args, [folder for folder in (path.parent, cwd) if results.can_be_seen(folder)])
    where = str(cwd) if results.can_be_seen(cwd) else "/"
    name = args.name or "run"
    printers = [Printer()] if args.guests == 1 else [Printer(1), Printer(2)]
    scene = guest.Guest(name, options) if args.guests == 1 else segment.Segment(name, options)
    with scene:
        guests = [scene] if args.guests == 1 else scene.guests
        for inside, outside in (p for g in guests for p in g.forwarded.items()):
            say(f"port {inside} of the guest is 127.0.0.1:{outside}")
        argv = argv_in(path, guests[0].out, args.arguments)
        processes = [g.start(argv, where, sink=p) for g, p in zip(guests, printers)]
        try:
            statuses = segment.wait_all(processes, args.timeout, GRACE_SECONDS)
        finally:
            for printer in printers:
                printer.finish()
    failed = next((n for n, status in enumerate(statuses) if status), None)
    if failed is None:
        return 0
    say(f"{args.script} ended with status {statuses[failed]} in {guests[failed].name}; {guests[failed].tail()}")
    return statuses[failed]


def cmd_shell(args):
    options = options_of(args, [folder for folder in [pathlib.Path.cwd()] if results.can_be_seen(folder)])
    if not sys.stdin.isatty():
        raise guest.GuestError("a shell needs a terminal")
    size = os.get_terminal_size(sys.stdin.fileno())
    saved = termios.tcgetattr(sys.stdin)
    try:
        with guest.Guest(args.name or "shell", options, is_interactive=True) as g:
            for inside, outside in g.forwarded.items():
                say(f"port {inside} of the guest is 127.0.0.1:{outside}")
            tty.setraw(sys.stdin)
            cwd = pathlib.Path.cwd()
            shell = ["/bin/sh", "-c", 'stty sane rows "$1" cols "$2"; exec /bin/bash -i', "sh", str(size.lines),
                     str(size.columns)]
            process = g.start(shell, str(cwd) if results.can_be_seen(cwd) else "/", is_terminal=True)
            while process.status is None:
                g.pump(None)
            return process.status
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, saved)


def main(arguments):
    args = parse(arguments)
    try:
        if args.command == "build":
            print(kernel.build(args.jobs, say))
            return 0
        return cmd_run(args) if args.command == "run" else cmd_shell(args)
    except (kernel.KernelError, qemu.QemuError, results.ResultsError) as error:
        say(error)
        return UNUSABLE
    except guest.GuestError as error:
        say(error)
        return error.status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
