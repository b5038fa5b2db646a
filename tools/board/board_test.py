#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The board: that it says of a suite what is so, above all of one that goes wrong, and that nothing of it stays behind."""

import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import board
import columns
import differences
import events
import packages
import report
import results
import room
import runner
import suites

HEAD = "import os, sys, time, signal, subprocess\nsys.path.insert(0, os.environ['FOLDER'])\nimport events\nlisted = events.Events(os.environ['BOARD_EVENTS'])\n"
NATIVE = columns.NATIVE
ONCE = columns.Column("once", "", (columns.Placement(),))


class Rooms(unittest.TestCase):
    """Pieces that are scripts of a few lines."""

    @classmethod
    def setUpClass(cls):
        if why := runner.refused():
            raise unittest.SkipTest(why)

    def play(self, script, column=ONCE, test_seconds=20, piece_seconds=40, over=""):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "runners").mkdir()
            (folder / "runners" / "script.py").write_text(HEAD + script)
            suite = types.SimpleNamespace(name="suite", runner=str(folder / "runners" / "script"), ends=2, test_seconds=test_seconds,
                                          piece_seconds=piece_seconds, options={}, leave_out=())
            os.environ["FOLDER"] = str(suites.FOLDER)
            log = folder / "log"
            found, _ = runner.run(runner.Job(suite, "piece", column, "", over), runner.Library(folder / "ddprun"), folder / "work", log)
            self.log = log.read_text()
            self.assertEqual(sorted(entry.name for entry in folder.iterdir()), ["log", "runners"])
            return {test: verdict for test, (verdict, _) in found.items()}, {test: detail for test, (_, detail) in found.items()}

    def test_each_verdict_is_kept(self):
        verdicts, details = self.play("for each in ('pass', 'fail', 'skip'):\n  listed.start(each); listed.end(each, each, 'why ' + each)\n")
        self.assertEqual(verdicts, {"pass": "pass", "fail": "fail", "skip": "skip", "piece: (end)": "pass"})
        self.assertEqual(details["fail"], "why fail")

    def test_crash_is_of_the_test_that_ran_and_the_others_are_run(self):
        verdicts, details = self.play("for each in 'abc':\n  if each in listed.begun: continue\n  listed.start(each)\n"
                                      "  if each == 'b': os.kill(os.getpid(), signal.SIGSEGV)\n  listed.end(each, 'pass')\n")
        self.assertEqual(verdicts, {"a": "pass", "b": "crash", "c": "pass", "piece: (end)": "pass"})
        self.assertEqual(details["b"], "status -11")

    def test_hang_is_of_the_test_that_ran_and_the_others_are_run(self):
        verdicts, _ = self.play("for each in 'abc':\n  if each in listed.begun: continue\n  listed.start(each)\n"
                                "  if each == 'b': signal.signal(signal.SIGABRT, signal.SIG_IGN); time.sleep(1000)\n  listed.end(each, 'pass')\n",
                                test_seconds=1)
        self.assertEqual(verdicts, {"a": "pass", "b": "hang", "c": "pass", "piece: (end)": "pass"})
        self.assertIn("script.py", self.log)  # who hung

    def test_piece_that_is_too_long_is_ended(self):
        begin = time.monotonic()
        verdicts, details = self.play("listed.start('a'); listed.end('a', 'pass'); time.sleep(1000)", piece_seconds=1)
        self.assertLess(time.monotonic() - begin, 20)
        self.assertEqual(verdicts, {"a": "pass", "piece: (end)": "fail"})
        self.assertIn("not done after 1 seconds", details["piece: (end)"])

    def test_runner_that_hangs_after_its_last_test_is_ended(self):
        verdicts, details = self.play("if 'a' in listed.begun: sys.exit(0)\nlisted.start('a'); listed.end('a', 'pass'); time.sleep(1000)", test_seconds=1)
        self.assertEqual(verdicts, {"a": "pass", "piece: (end)": "fail"})
        self.assertIn("not done after 1 seconds", details["piece: (end)"])

    def test_who_stays_behind_is_named_and_ended(self):
        verdicts, details = self.play("subprocess.Popen(['setsid', 'sleep', '987654'])")
        self.assertEqual(verdicts, {"piece: (end)": "fail"})
        self.assertIn("sleep 987654", details["piece: (end)"])
        running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
        self.assertNotIn("sleep 987654", running)

    def test_shared_memory_that_is_left_is_named(self):
        verdicts, details = self.play("open('/dev/shm/left', 'w'); open('/dev/shm/ddpsock-0', 'w')")
        self.assertEqual(verdicts, {"piece: (end)": "fail"})
        self.assertIn("left in shared memory: left", details["piece: (end)"])
        self.assertFalse(os.path.exists("/dev/shm/left"))

    def test_status_of_the_runner_counts(self):
        verdicts, details = self.play("listed.start('a'); listed.end('a', 'pass'); sys.exit(3)")
        self.assertEqual(verdicts, {"a": "pass", "piece: (end)": "fail"})
        self.assertIn("status 3", details["piece: (end)"])

    def test_runner_that_cannot_start_is_no_pass(self):
        verdicts, _ = self.play("import nothing_of_that_name")
        self.assertEqual(verdicts, {"piece: (end)": "fail"})

    def test_native_runs_that_do_not_agree_are_flaky(self):
        with tempfile.TemporaryDirectory() as folder:
            script = f"listed.start('a'); path = {folder + '/seen'!r}; first = not os.path.exists(path); open(path, 'w')\n" \
                     "listed.end('a', 'pass' if first else 'fail', 'second')\n"
            verdicts, details = self.play(script, NATIVE)
        self.assertEqual(verdicts, {"a": "flaky", "piece: (end)": "pass"})
        self.assertEqual(details["a"], "pass and fail: second")

    def test_worst_of_the_placements_stands(self):
        both = columns.Column("both", "", (columns.Placement(), columns.Placement(client_is_another_user=True)))
        verdicts, _ = self.play("listed.start('a'); listed.end('a', 'fail' if os.environ['BOARD_CLIENT_USER'] else 'pass')", both)
        self.assertEqual(verdicts["a"], "fail")

    def test_elsewhere_is_another_network(self):
        column = columns.Column("far", "", (columns.Placement(client_is_elsewhere=True),))
        script = "import socket, room\nlistener = socket.create_server((room.ADDRESS_HERE, 5000))\nlisted.start('a')\n" \
                 "there = ['nsenter', '-t', os.environ['BOARD_ELSEWHERE'], '-n', 'python3', '-c']\n" \
                 "talk = f'import socket; print(socket.create_connection((\"{room.ADDRESS_HERE}\", 5000)).getsockname()[0])'\n" \
                 "said = subprocess.run([*there, talk], capture_output=True, text=True).stdout.strip()\n" \
                 "listed.end('a', 'pass' if said == room.ADDRESS_ELSEWHERE else 'fail', said)\n"
        verdicts, details = self.play(script, column)
        self.assertEqual(verdicts["a"], "pass", details)

    def test_what_is_laid_over_the_system_is_there_in_the_room_only(self):
        with tempfile.TemporaryDirectory() as over:
            (pathlib.Path(over) / "usr" / "bin").mkdir(parents=True)
            (pathlib.Path(over) / "usr" / "bin" / "of-the-board").write_text("#!/bin/sh\necho over\n")
            (pathlib.Path(over) / "usr" / "bin" / "of-the-board").chmod(0o755)
            verdicts, details = self.play("listed.start('a')\nsaid = subprocess.run(['of-the-board'], capture_output=True, text=True).stdout\n"
                                          "listed.end('a', 'pass' if said == 'over\\n' else 'fail', said)\n", over=over)
        self.assertEqual(verdicts, {"a": "pass", "piece: (end)": "pass"}, details)
        self.assertFalse(os.path.exists("/usr/bin/of-the-board"))

    def test_ports_and_environment_are_its_own(self):
        os.environ["DDPSOCK_REGISTRY_DIR"] = "/nowhere"
        try:
            verdicts, details = self.play("listed.start('a')\nlisted.end('a', 'fail' if 'DDPSOCK_REGISTRY_DIR' in os.environ or "
                                          "len(open('/proc/net/tcp').readlines()) > 1 else 'pass')")
        finally:
            del os.environ["DDPSOCK_REGISTRY_DIR"]
        self.assertEqual(verdicts["a"], "pass", details)


class Events(unittest.TestCase):
    def test_worst_end_stands_and_who_runs_is_known(self):
        found, running = events.outcomes([{"test": "a", "state": "start"}, {"test": "a", "state": "fail", "detail": "x"},
                                          {"test": "a", "state": "pass", "detail": ""}, {"test": "b", "state": "start"}])
        self.assertEqual((found, running), ({"a": ("fail", "x")}, "b"))

    def test_half_a_line_is_not_read(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "events"
            events.Events(path).start("a")
            with open(path, "a", encoding="ascii") as file:
                file.write('{"test": "b", "sta')
            self.assertEqual([event["test"] for event in events.read(path)], ["a"])


class Suites(unittest.TestCase):
    def test_all_can_be_read(self):
        every = suites.read_all()
        self.assertIn("cpython", every)
        for suite in every.values():
            self.assertTrue(suite.pieces, suite.name)
            self.assertLessEqual(set(suite.not_in) | set(suite.short_columns), set(columns.COLUMNS), suite.name)

    def test_every_scenario_has_the_pieces_of_its_suite(self):
        sys.path.insert(0, str(suites.FOLDER / "scenarios"))
        for suite in suites.read_all().values():
            if suite.runner == "scenario":
                module = __import__(suite.name)
                self.assertEqual(set(suite.pieces), set(module.PIECES), suite.name)

    def test_what_is_not_known_is_refused(self):
        for words, why in (('titel = "x"', "titel"), ('title = "x"', "missing"),
                           ('title = "x"\nrunner = "scenario"\npackages = []\npieces = ["a"]\nshort = ["b"]', "no piece b"),
                           ('title = "x"\nrunner = "no-such"\npackages = []\npieces = ["a"]', "there is no"),
                           ('title = "x"\nrunner = "cpython"\npackages = []\npieces = ["a"]\nleave_out = ["b"]', "go together")):
            with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(suites.BadSuite, why):
                path = pathlib.Path(folder) / "suite.toml"
                path.write_text(words)
                suites.read(path)

    def test_one_process_has_a_dash_where_the_ends_differ(self):
        suite = suites.read_all()["cpython"]
        self.assertEqual([name for name, column in columns.COLUMNS.items() if suite.dash(column)], ["plain-peer", "elsewhere", "users"])


class Differences(unittest.TestCase):
    NATIVE = {"a": ("pass", ""), "b": ("fail", ""), "c": ("flaky", ""), "d": ("pass", "")}

    def test_each_kind_is_found(self):
        here = {"a": ("hang", "why"), "b": ("pass", ""), "c": ("fail", ""), "e": ("pass", "")}
        found = [(each.test, each.natively, each.here) for each in differences.compare("s", "shm", self.NATIVE, here)]
        self.assertEqual(found, [("a", "pass", "hang"), ("b", "fail", "pass"), ("d", "pass", "not run"), ("e", "not run", "pass")])

    def test_start_again_after_a_hang_is_none(self):
        self.assertEqual(differences.compare("s", "shm", {}, {"p: starts again before x": ("pass", "")}), [])

    def test_same_is_none(self):
        self.assertEqual(differences.compare("s", "shm", self.NATIVE, self.NATIVE), [])

    def test_list_only_shrinks(self):
        found = differences.compare("s", "shm", self.NATIVE, self.NATIVE | {"a": ("fail", ""), "d": ("fail", "")})
        reasons = {("s", "shm", "a"): differences.Reason("why"), ("s", "shm", "b"): differences.Reason("of old"),
                   ("s", "user", "a"): differences.Reason("not run now"), ("s", "shm", "c"): differences.Reason("rare", is_rare=True)}
        unlisted, gone = differences.judge(found, reasons, lambda key: key[1] == "shm")
        self.assertEqual(([each.test for each in unlisted], gone), (["d"], [("s", "shm", "b")]))

    def test_list_can_be_read_and_names_what_there_is(self):
        every = suites.read_all()
        for (suite, column, _), reason in differences.read_list().items():
            self.assertIn(suite, every)
            self.assertIn(column, columns.COLUMNS)
            self.assertTrue(reason.text.strip())

    def test_entry_without_a_reason_or_twice_is_refused(self):
        entry = '[[difference]]\nsuite = "s"\ncolumns = ["shm"]\ntests = ["a"]\n'
        for words in (entry, (entry + 'reason = "x"\n') * 2):
            with tempfile.TemporaryDirectory() as folder, self.assertRaises(differences.BadList):
                path = pathlib.Path(folder) / "list.toml"
                path.write_text(words)
                differences.read_list(path)


class Results(unittest.TestCase):
    def test_done_is_done_for_the_same_key_only(self):
        with tempfile.TemporaryDirectory() as folder:
            kept = results.load(pathlib.Path(folder), "s", "shm")
            kept.keep("piece", "key", 1.5, {"a": ("pass", "")})
            again = results.load(pathlib.Path(folder), "s", "shm")
            self.assertTrue(again.is_done("piece", "key"))
            self.assertFalse(again.is_done("piece", "other"))
            self.assertFalse(again.is_done("other", "key"))
            self.assertEqual(again.tests(), {"a": ("pass", "")})

    def test_digest_tells_parts_apart(self):
        self.assertNotEqual(results.digest("ab", "c"), results.digest("a", "bc"))


class Boards(unittest.TestCase):
    """The whole, with a suite that is made up."""

    def board(self, folder, found):
        every = {"s": suites.Suite("s", "The suite", "scenario", ("package",), ("piece",))}
        judged = types.SimpleNamespace(args=types.SimpleNamespace(suites=every, short=False, suite=[]), found={"s": {}})
        for name in columns.COLUMNS:
            kept = results.Results(pathlib.Path(folder) / f"{name}.json", version="1.0")
            if name in found:
                kept.keep("piece", "key", 1, found[name])
            judged.found["s"][name] = kept
        for name in ("differences", "was_run", "not_run", "wanted_pieces"):
            setattr(judged, name, types.MethodType(getattr(board.Board, name), judged))
        return judged

    def judge(self, found, reasons, problem=""):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as said:
            judged = self.board(folder, found)
            judged.found["s"]["native"].problem = problem
            old, differences.read_list = differences.read_list, lambda: reasons
            try:
                return board.Board.judge(judged), said.getvalue(), self.page(judged, reasons)
            finally:
                differences.read_list = old

    def page(self, judged, reasons, page=""):
        return report.Board(judged.args.suites, columns.COLUMNS, judged.found, judged.differences(), reasons, page).text("Linux.")

    def test_suite_that_is_not_run_whole_stays_as_the_page_has_it(self):
        passed, failed = {"a": ("pass", "")}, {"a": ("fail", "")}
        reasons = {("s", "shm", "a"): differences.Reason("The cause.")}
        with tempfile.TemporaryDirectory() as folder:
            whole = self.page(self.board(folder, dict.fromkeys(columns.COLUMNS, passed) | {"shm": failed, "native": passed}), reasons)
            self.assertIn("- **The suite**: The cause.", whole)
            self.assertEqual(self.page(self.board(folder, {"native": failed}), reasons, whole), whole)
            mended = self.page(self.board(folder, dict.fromkeys(columns.COLUMNS, passed)), {}, whole)
            self.assertNotIn("The cause", mended)
            self.assertIn("| The suite | 1.0 | 1 | not run |", self.page(self.board(folder, {}), {}).replace("| 0 |", "| 1 |"))

    def test_suite_that_was_never_run_whole_is_drawn_of_what_has_more(self):
        passed, failed = {"piece: a": ("pass", "")}, {"piece: a": ("fail", "")}
        with tempfile.TemporaryDirectory() as folder:
            part = self.page(self.board(folder, {"native": passed, "user": passed, "shm": failed}), {})
            self.assertIn("  - `piece: a`: natively pass, fail in `shm`\n", part)
            self.assertEqual(self.page(self.board(folder, {}), {}, part), part)
            less = self.page(self.board(folder, {"native": passed, "shm": failed}), {}, part)
            self.assertEqual(less, part)
            less = self.board(folder, {"native": passed, "shm": passed})
            less.found["s"]["shm"].library = "beef"
            mended = part.replace("fail in `shm`\n", "fail in `shm`; as natively in `beef`\n")
            self.assertEqual(self.page(less, {}, part), mended)
            self.assertEqual(self.page(less, {}, mended), mended)
            as_much = self.page(self.board(folder, {"native": passed, "user": passed, "shm": passed}), {}, part)
            self.assertNotIn("piece: a", as_much)

    def test_no_difference_is_right(self):
        is_wrong, said, page = self.judge({"native": {"a": ("pass", "")}, "shm": {"a": ("pass", "")}}, {})
        self.assertFalse(is_wrong)
        self.assertIn("2 tests passed in all columns together, 0 differ", said)
        self.assertIn("| The suite | 1.0 | 1 | 1 | not run |", page)

    def test_unlisted_difference_is_wrong(self):
        is_wrong, said, page = self.judge({"native": {"a": ("pass", "")}, "shm": {"a": ("fail", "the words")}}, {})
        self.assertTrue(is_wrong)
        self.assertIn("DIFFERS s, shm: a: natively pass, here fail\nthe words", said)
        self.assertIn("NOT EXPLAINED", page)

    def test_listed_difference_is_right_and_on_the_page(self):
        is_wrong, _, page = self.judge({"native": {"a": ("pass", "")}, "shm": {"a": ("fail", "")}}, {("s", "shm", "a"): differences.Reason("The cause.")})
        self.assertFalse(is_wrong)
        self.assertIn("- **The suite**: The cause.\n  - `a`: natively pass, fail in `shm`", page)
        self.assertIn("0 / 1 differ", page)

    def test_entry_that_no_longer_differs_is_wrong(self):
        is_wrong, said, _ = self.judge({"native": {"a": ("pass", "")}, "shm": {"a": ("pass", "")}}, {("s", "shm", "a"): differences.Reason("The cause.")})
        self.assertTrue(is_wrong)
        self.assertIn("NO LONGER DIFFERS s, shm: a", said)

    def test_suite_that_does_not_start_natively_is_not_run(self):
        for end in ({"piece: (end)": ("pass", "")}, {"piece: (end)": ("fail", "status 1")}, {}):
            stuck = {"piece: starts": ("fail", "the words")} | end
            reasons = {("s", "shm", test): differences.Reason("The cause.") for test in ("piece: a", "piece: (end)")}
            is_wrong, said, page = self.judge({"native": stuck, "shm": stuck, "user": {"piece: starts": ("pass", "")}}, reasons)
            self.assertIn("NOT RUN s: piece does not start natively: piece: starts: fail the words", said)
            self.assertNotIn("DIFFERS", said)
            self.assertFalse(is_wrong)
            self.assertIn("| 0, 1 pieces not run |", page)

    def test_piece_that_skips_itself_natively_is_run(self):
        is_wrong, said, _ = self.judge({"native": {"a": ("skip", "")}, "shm": {"a": ("skip", "")}}, {("s", "shm", "a"): differences.Reason("The cause.")})
        self.assertTrue(is_wrong)
        self.assertIn("NO LONGER DIFFERS s, shm: a", said)
        self.assertNotIn("NOT RUN", said)

    def test_suite_that_could_not_be_installed_is_said(self):
        _, said, page = self.judge({}, {}, problem="could not be installed: no such package")
        self.assertIn("NOT RUN s: could not be installed: no such package", said)
        self.assertIn("could not be installed: no such package", page)


    def test_suite_that_is_not_given_is_said(self):
        _, said, page = self.judge({}, {}, problem="not given: no package has it")
        self.assertIn("NOT RUN s: not given: no package has it", said)
        self.assertIn("| not given |", page)
        self.assertNotIn("installed", page)


class Ltp(unittest.TestCase):
    """An installed LTP, of programs that are scripts."""
    PROGRAMS = {
        "accept01": "echo 'tst_test.c:1: TINFO: x' >&2; echo 'accept01.c:9: TPASS: bad fd: EBADF (9)'; echo 'accept01.c:9: TPASS: more'",
        "accept02": "echo 'accept02.c:9: TPASS: one'; echo 'accept02.c:12: TFAIL: two: EINVAL (22)'; exit 1",
        "accept03": "echo 'accept03.c:9: TCONF: no such family'; exit 32",
        "accept04": "echo 'accept04    1  TPASS  :  of the old kind'",
        "accept05": "kill -SEGV $$",
        "accept06": "exit 0",
        "accept07": "echo 'Test timeouted, sending SIGKILL!'; echo 'tst_test.c:1: TBROK: Test killed!'; exit 2",
        "accept08": "echo 'accept08.c:1: TPASS: left out'",
        "write01": "echo 'write01.c:1: TPASS: no socket'",
    }

    def test_each_result_is_a_test(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder) / "root"
            (root / "runtest").mkdir(parents=True)
            (root / "testcases" / "bin").mkdir(parents=True)
            (root / "runtest" / "syscalls").write_text("#of calls\n\n" + "".join(f"{name} {name}\n" for name in self.PROGRAMS))
            for name, words in self.PROGRAMS.items():
                (root / "testcases" / "bin" / name).write_text(f"#!/bin/sh\n{words}\n")
                (root / "testcases" / "bin" / name).chmod(0o755)
            listed = pathlib.Path(folder) / "events"
            subprocess.run([sys.executable, suites.FOLDER / "runners" / "ltp.py"], check=True, stdout=subprocess.DEVNULL,
                           env=os.environ | {"BOARD_EVENTS": str(listed), "BOARD_PIECE": "sockets", "BOARD_SOURCES": str(root),
                                             "BOARD_FOLDER": folder, "BOARD_LEAVE_OUT": '["accept08"]',
                                             "BOARD_OPTIONS": '{"sockets": ["accept*"]}'})
            found, running = events.outcomes(events.read(listed))
        self.assertIsNone(running)
        self.assertEqual({test: verdict for test, (verdict, _) in found.items()}, {
            "accept01": "pass", "accept01 1": "pass", "accept01 2": "pass", "accept02": "fail", "accept02 1": "pass", "accept02 2": "fail",
            "accept03": "skip", "accept03 1": "skip", "accept04": "pass", "accept04 1": "pass", "accept05": "crash", "accept06": "fail",
            "accept07": "hang", "accept07 1": "fail"})
        self.assertEqual(found["accept02 2"][1], "TFAIL: two: EINVAL (22)")


class Packages(unittest.TestCase):
    def test_what_is_not_given_or_is_not_there_is_no_suite(self):
        with tempfile.TemporaryDirectory() as folder:
            os.environ.pop("BOARD_TEST_GIVEN", None)
            self.assertRaises(packages.NotGiven, packages.given, "BOARD_TEST_GIVEN")
            os.environ["BOARD_TEST_GIVEN"] = folder
            try:
                self.assertRaises(packages.NotGiven, packages.given, "BOARD_TEST_GIVEN")
                (pathlib.Path(folder) / "Version").write_text("20260529\n")
                self.assertEqual(packages.given("BOARD_TEST_GIVEN"), (str(pathlib.Path(folder).resolve()), "20260529"))
            finally:
                del os.environ["BOARD_TEST_GIVEN"]

    def test_package_that_is_nowhere_cannot_be_installed(self):
        self.assertIsNone(packages.version("no-such-package-of-the-board"))

    def test_lists_of_sources_have_sources_only(self):
        for line in packages.source_lists():
            self.assertTrue(line.startswith("deb-src "), line)


if __name__ == "__main__":
    unittest.main()
