#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs test suites and programs from elsewhere without the library and with it, and compares test by test; README.md says
how. What was done for this library is not done again."""

import argparse
import concurrent.futures
import fnmatch
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import sys
import threading
import time

import columns
import differences
import events
import packages
import report
import results
import runner
import suites

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "doc" / "board.md"
SKIPPED = 77  # meson's


def read_arguments():
    parser = argparse.ArgumentParser(prog="./dev board", description=__doc__)
    parser.add_argument("suite", nargs="*", help="which ones, each a name or NAME:PIECE with * and ? (all)")
    parser.add_argument("--columns", metavar="A,B", help=f"({','.join(columns.COLUMNS)})")
    parser.add_argument("--list", action="store_true", help="list the suites, their pieces and where they run")
    parser.add_argument("--fresh", action="store_true", help="run also what is done")
    parser.add_argument("--short", action="store_true", help="the slice that ./dev test runs, anew and apart from all else")
    parser.add_argument("--report", action="store_true", help="run nothing: judge what is there, and draw doc/board.md of it")
    parser.add_argument("--jobs", type=int, default=1, help="pieces at a time (1)")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="the build folder (build)")
    args = parser.parse_args()
    args.columns = args.columns.split(",") if args.columns else list(columns.COLUMNS)
    if unknown := set(args.columns) - set(columns.COLUMNS):
        parser.error(f"no column {', '.join(sorted(unknown))}")
    args.suites = suites.read_all()
    for wanted in args.suite:
        if not any(matches(wanted, name, piece) for name, suite in args.suites.items() for piece in suite.pieces):
            parser.error(f"no suite or piece {wanted}; see --list")
    return args


def matches(wanted, name, piece):
    suite, _, pieces = wanted.partition(":")
    return fnmatch.fnmatch(name, suite) and fnmatch.fnmatch(piece, pieces or "*")


def list_all(args):
    for name, suite in args.suites.items():
        running = [column.name for column in columns.COLUMNS.values() if not suite.dash(column)]
        print(f"{name}: {suite.title} ({', '.join(running)})\n    {' '.join(suite.pieces)}")


def revision():
    def git(*words):
        return subprocess.run(["git", "-C", str(ROOT), "-c", "safe.directory=*", *words], capture_output=True, text=True).stdout.strip()
    # The page is what a run makes: it is in no library.
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", f":(exclude){PAGE.relative_to(ROOT)}")
    return (git("rev-parse", "--short=10", "HEAD") or "unknown") + ("+" if changed else "")


class Board:
    def __init__(self, args):
        self.args = args
        self.folder = args.build / "board" / ("short" if args.short else "")
        self.work = self.folder / "work" / str(os.getpid())
        self.library = runner.Library(args.build.resolve() / "shim" / "ddprun")
        self.built = results.of_files([self.library.ddprun, self.library.ddprun.with_name("libddpsock.so")])
        self.harness = results.of_files(suites.FOLDER / name for name in ("room.py", "runner.py", "events.py"))
        self.revision = revision()
        self.found = {}  # suite -> column -> Results
        self.keys = {}
        self.lock = threading.Lock()

    def wanted_pieces(self, suite):
        pieces = suite.short if self.args.short else suite.pieces
        return [piece for piece in pieces if not self.args.suite or any(matches(w, suite.name, piece) for w in self.args.suite)]

    def wanted_columns(self, suite):
        """The native one always: it is what others are compared with."""
        names = ["native"] + [name for name in self.args.columns if name != "native"]
        if self.args.short:
            names = ["native"] + [name for name in suite.short_columns if name in self.args.columns]
        return [columns.COLUMNS[name] for name in names if not suite.dash(columns.COLUMNS[name])]

    def load(self):
        if self.args.short:  # of this run alone
            shutil.rmtree(self.folder / "results", ignore_errors=True)
        for suite in self.args.suites.values():
            self.found[suite.name] = {name: results.load(self.folder / "results", suite.name, name) for name in columns.COLUMNS}

    def install(self, suite):
        """Where its sources are, if it has any, its version, and what is laid over the system; raises NotInstalled."""
        packages.install([*suite.packages, *suite.build_packages])
        if suite.given:
            return *packages.given(suite.given), ""
        if not suite.source:
            return "", packages.version(suite.packages[0]), ""
        folder = self.args.build.resolve() / "board" / "sources"
        unpacked = packages.fetch_source(suite.source, folder)
        version = packages.source_version(unpacked)
        return str(unpacked), version, str(packages.lay_over(suite.over, version, folder)) if suite.over else ""

    def key(self, suite, column, version):
        """Same key, same result. The native column has no library in it."""
        built = "" if column.name == "native" else self.built
        versions = [packages.version(package) for package in suite.packages]
        return results.digest(built, column, version, versions, self.harness, suite.identity(), results.of_files(suite.files()))

    def jobs(self):
        """What is to be done, and for each job its key."""
        todo = []
        for suite in self.args.suites.values():
            pieces = self.wanted_pieces(suite)
            if not pieces:
                continue
            try:
                sources, version, over = self.install(suite)
            except packages.NotInstalled as why:
                self.cannot(suite, f"{why.what}: {why}")
                continue
            for kept in self.found[suite.name].values():
                if kept.problem:
                    kept.problem = ""
                    kept.save()
            for column in self.wanted_columns(suite):
                kept, key = self.found[suite.name][column.name], self.key(suite, column, version)
                kept.version = version
                for gone in set(kept.pieces) - set(suite.pieces):
                    del kept.pieces[gone]
                for piece in pieces:
                    if self.args.fresh or not kept.is_done(piece, key) or column is columns.NATIVE and piece in kept.not_started():
                        todo.append((runner.Job(suite, piece, column, sources, over), key))
        return todo

    def cannot(self, suite, why):
        print(f"{suite.name}: {why}", flush=True)
        for column in self.wanted_columns(suite):
            kept = self.found[suite.name][column.name]
            kept.problem, kept.pieces = why, {}
            kept.save()

    def do(self, job, key):
        work = self.work / job.suite.name / job.column.name / job.piece
        log = self.folder / "logs" / job.suite.name / job.column.name / f"{job.piece}.log"
        tests, seconds = runner.run(job, self.library, work.resolve(), log, self.args.short)
        if runner.ending.is_set():
            return tests, seconds
        with self.lock:
            kept = self.found[job.suite.name][job.column.name]
            kept.library = self.revision if job.column.name != "native" else ""
            kept.keep(job.piece, key, seconds, tests)
        return tests, seconds

    def progress(self, done, all_jobs, begin, job, tests, seconds):
        verdicts = [verdict for verdict, _ in tests.values()]
        said = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts))
        left = (time.monotonic() - begin) / done * (all_jobs - done) / 60
        print(f"[{done}/{all_jobs}] {job.suite.name} {job.piece}, {job.column.name}: {said} ({seconds} s; about {left:.0f} min left)",
              flush=True)

    def run(self):
        jobs = self.jobs()
        begin = time.monotonic()
        pool = concurrent.futures.ThreadPoolExecutor(self.args.jobs)
        running = {pool.submit(self.do, *job): job[0] for job in jobs}
        try:
            for done, future in enumerate(concurrent.futures.as_completed(running), 1):
                self.progress(done, len(jobs), begin, running[future], *future.result())
        except BaseException:
            runner.end_all()
            raise
        finally:
            pool.shutdown(cancel_futures=True)
            shutil.rmtree(self.work, ignore_errors=True)

    def differences(self, of_all=True):
        """All that are known, or those among the pieces that were asked for."""
        found = []
        for suite in self.args.suites.values():
            native = self.found[suite.name]["native"]
            for column in list(columns.COLUMNS.values())[1:]:
                here = self.found[suite.name][column.name]
                pieces = set(native.pieces) & set(here.pieces) - native.not_started()
                if not of_all:
                    pieces &= set(self.wanted_pieces(suite))
                found += differences.compare(suite.name, column.name, native.tests(pieces), here.tests(pieces))
        return found

    def was_run(self, key):
        suite, column, test = key
        if suite not in self.found or column not in self.found[suite]:
            return not self.args.short
        # A test that is gone was not run either; only a run of all pieces can tell, of which each has started natively.
        here, asked = self.found[suite][column], set(self.wanted_pieces(self.args.suites[suite]))
        started = asked - self.found[suite]["native"].not_started()
        return test in here.tests(started) or set(here.pieces) == started == set(self.args.suites[suite].pieces)

    def not_run(self):
        """What is the matter with suites of which there is nothing, or pieces that natively did not come to their tests."""
        for name, by_column in self.found.items():
            yield from (f"{name}: {kept.problem}" for kept in by_column.values() if kept.problem)
            native = by_column["native"]
            for piece in native.not_started() & set(self.wanted_pieces(self.args.suites[name])):
                yield f"{name}: {piece} does not start natively: " + "; ".join(
                    f"{test}: {verdict} {detail}" for test, (verdict, detail) in native.tests({piece}).items() if verdict != events.PASS)

    def judge(self):
        """Prints what is wrong; returns whether anything is."""
        found, reasons = self.differences(of_all=False), differences.read_list()
        unlisted, gone = differences.judge(found, reasons, self.was_run)
        for each in unlisted:
            print(f"\nDIFFERS {each.suite}, {each.column}: {each.test}: natively {each.natively}, here {each.here}\n{each.detail}")
        for suite, column, test in gone:
            print(f"\nNO LONGER DIFFERS {suite}, {column}: {test}: take it out of {differences.LIST.name}")
        for problem in sorted(set(self.not_run())):
            print(f"\nNOT RUN {problem}")
        passed = sum(1 for by_column in self.found.values() for kept in by_column.values() for verdict, _ in kept.tests().values()
                     if verdict == "pass")
        print(f"\n{passed} tests passed in all columns together, {len(found)} differ from native, {len(unlisted)} without a listed reason")
        return bool(unlisted or gone)

    def draw(self):
        """doc/board.md: suites that were run whole here are drawn anew."""
        page = report.Board(self.args.suites, columns.COLUMNS, self.found, self.differences(), differences.read_list(),
                            PAGE.read_text() if PAGE.exists() else "")
        machine = f"Linux {platform.release().partition('-')[0]} on {platform.machine()}, {debian()}."
        PAGE.write_text(page.text(machine))
        whole = [suite.name for suite in self.args.suites.values() if not page.missing(suite)]
        print(f"drew {PAGE}, with what was run here of {', '.join(whole) or 'no suite'}")


def debian():
    said = dict(line.split("=", 1) for line in pathlib.Path("/etc/os-release").read_text().splitlines() if "=" in line)
    return said.get("PRETTY_NAME", "").strip('"')


def end_on_signal(number, _frame):
    """As an exception, so that everything that was started is ended."""
    sys.exit(128 + number)


def main():
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, end_on_signal)
    os.umask(0o022)
    args = read_arguments()
    if args.list:
        return list_all(args)
    if why := None if args.report else runner.refused():
        print(f"no room of its own can be made for what would run: {why}")
        return SKIPPED if args.short else 1
    board = Board(args)
    board.load()
    if not args.report:
        board.run()
    is_wrong = board.judge()
    if not args.short:
        board.draw()
    return 1 if is_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
