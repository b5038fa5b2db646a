#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The results file and the page, from canned samples: nothing is measured here."""

import argparse
import itertools
import json
import pathlib
import re
import sys
import tempfile
import unittest
import unittest.mock
import xml.etree.ElementTree as ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import figure
import machine
import modes
import recorder
import report
import results
import svg
import targets
import ways
from benches import BENCHES

KEYS = ["bench", "case", "unit", "ours", "peer", "peer_name", "ratio", "better"]
FACTS = {"cpu": "a <quick> CPU", "kernel": "6.18", "ddpsock": "v0-test"}
MET, MISSED = [t for t in targets.SHM_TARGETS if t.bench == "stream"][:2]
EXPLAINED = next(t for t in targets.SHM_TARGETS if t.cause)
NEAR, FAR = 45.0, 375.0


def canned_recorder():
    args = argparse.Namespace(rounds=5, seconds=0.1, quick=False, no_pin=False, only="")
    return recorder.Recorder(args)


def canned_case(figure, x, ours=8.0, baseline="plain TCP"):
    rounds = [0.9, 1.0, 1.1, 1.0, 1.0]
    samples = {baseline: [10 * r for r in rounds], "user engine": [11 * r for r in rounds], "shm engine": [ours * r for r in rounds]}
    return recorder.Case(figure, f"{figure} at {x}", x, "us one way", "lower", samples, cpu_us={baseline: [3.5]},
                         calls={"shm engine": 0.25, baseline: 2.0})


def cases_of(module):
    for figure in module.FIGURES:
        for x in (1, 64, 4096) if figure.kind == "lines" else ("few & far", "many"):
            yield canned_case(figure.key, x, baseline=figure.baseline)


def target_case(target, ratio):
    case = canned_case("in no figure", 8)
    case.name, case.samples = target.case, {target.ours: [ratio * 100] * 5, target.peer: [100.0] * 5}
    return case


def in_two_modes(case, way):
    """As if the machine had gone from near to far, where `way` takes three times as long."""
    case.line_ns = [NEAR, NEAR, NEAR, FAR, FAR]
    case.samples[way] = [v * (3 if ns == FAR else 1) for v, ns in zip(case.samples[way], case.line_ns)]
    return case


def store(folder, bench, cases, is_partial=False):
    found = [r for case in cases for r in results.of_case(bench, case)]
    details = {"machine": FACTS, "rounds": 5, "seconds": 0.25, "is_quick": False, "minutes": 1.5, "problems": [f"{bench}: <none> really"],
               "cases": [vars(c) for c in cases]}
    results.store(folder, bench, found, details, is_partial)


class Page(unittest.TestCase):
    """Every figure of every benchmark, a target that is met and one that is missed, a benchmark without figures."""

    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        folder = pathlib.Path(cls.temporary.name)
        judged = {"stream": [target_case(MET, target_ratio(MET, True)), in_two_modes(target_case(MISSED, target_ratio(MISSED, False)), MISSED.ours)],
                  EXPLAINED.bench: [target_case(EXPLAINED, target_ratio(EXPLAINED, False))]}
        for name, module in BENCHES.items():
            cases = list(cases_of(module))
            if name == "stream":
                in_two_modes(cases[0], "user engine")
            store(folder, name, [*cases, *judged.get(name, [])])
        rows = json.loads((folder / "results.json").read_text())
        rows.append(dict(zip(KEYS, ["elsewhere", "a <case>", "us", 1.0, 2.0, "another", 0.5, "lower"])))
        (folder / "results.json").write_text(json.dumps(rows))
        cls.rows = rows
        cls.text = report.write(folder).read_text()
        cls.page = ElementTree.fromstring(cls.text.removeprefix("<!DOCTYPE html>\n"))

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def by_id(self):
        return {e.get("id"): e for e in self.page.iter() if e.get("id")}

    def test_needs_nothing_else(self):
        for element in self.page.iter():
            self.assertNotIn(element.tag, ("script", "link", "img", "iframe"))
            for name, value in element.attrib.items():
                self.assertFalse(name in ("src", "srcset"), f"{element.tag} {name}")
                self.assertTrue(name != "href" or value.startswith("#"), value)
        self.assertNotRegex(self.text, r"url\(|@import|https?:")

    def test_links_lead_to_sections(self):
        ids = self.by_id()
        links = [e.get("href")[1:] for e in self.page.iter("a")]
        self.assertEqual(links, ["targets", *BENCHES, "elsewhere", "machine"])
        self.assertTrue(all(ids[link].tag == "section" for link in links))

    def test_every_figure_is_drawn_with_sentence_legend_and_table(self):
        ids = self.by_id()
        for name, module in BENCHES.items():
            for figure in module.FIGURES:
                drawn = ids[f"{name}-{figure.key}"]
                self.assertIn("10.0", "".join(drawn.find(".//table").itertext()))
                picture = drawn.find("./div/svg")
                if figure.kind == "table":
                    self.assertIsNone(picture)
                    continue
                marks = "polygon" if figure.kind == "lines" else "rect"
                self.assertGreater(len(list(picture.iter(marks))), 1, figure.key)
                text = "".join(drawn.itertext())
                self.assertIn("shm engine 1.25", text, figure.key)
                self.assertEqual(len(drawn.findall(".//tbody/tr")), 3 if figure.kind == "lines" else 2)
                self.assertIn("0.25 calls", text)

    def test_pictures_stay_within_their_frames(self):
        for picture in self.page.iter("svg"):
            _, _, width, height = map(float, picture.get("viewBox").split())
            for element in picture.iter():
                for x, y in coordinates(element):
                    self.assertTrue(-1 <= x <= width + 1 and -1 <= y <= height + 1, ElementTree.tostring(element))
        self.assertNotRegex(self.text, r"\bnan\b|\binf\b")

    def test_targets_are_marked(self):
        rows = {row.find("th").text: row.get("class") for row in self.by_id()["targets"].iter("tr") if row.get("class")}
        self.assertEqual(rows[MET.text], "met")
        self.assertEqual(rows[MISSED.text], "missed")
        self.assertIn("open", rows.values())

    def test_a_missed_target_says_why(self):
        rows = {row.find("th").text: "".join(row.itertext()) for row in self.by_id()["targets"].iter("tr") if row.get("class")}
        self.assertIn(EXPLAINED.cause, rows[EXPLAINED.text])

    def test_near_and_far_are_told_apart(self):
        ratio = target_ratio(MISSED, False)
        row = next(row for row in self.by_id()["targets"].iter("tr") if row.get("class") and row.find("th").text == MISSED.text)
        self.assertIn(f"(near {ratio:.3g}, far {3 * ratio:.3g})", "".join(row.itertext()))
        stream = self.by_id()["stream"]
        self.assertIn("near 11.0, far 33.0", "".join(stream.find(".//table").itertext()))
        self.assertIn("near, 45 ns, in 60 % of the rounds; far, 375 ns", "".join(stream.itertext()))

    def test_problems_and_facts_are_shown(self):
        text = "".join(self.page.itertext())
        self.assertIn("<none> really", text)
        self.assertIn("a <quick> CPU", text)
        self.assertIn("a <case>", text)

    def test_rows_have_the_promised_form(self):
        for row in self.rows:
            self.assertEqual(list(row), KEYS)
            self.assertAlmostEqual(row["ratio"], row["ours"] / row["peer"], 3)
            self.assertIn(row["better"], ("lower", "higher"))


def target_ratio(target, is_met):
    return target.limit * (0.5 if (target.sense == "at most") == is_met else 2)


def coordinates(element):
    if element.tag == "polygon":
        return [tuple(map(float, p.split(","))) for p in element.get("points").split()]
    if element.tag == "circle":
        return [(float(element.get("cx")), float(element.get("cy")))]
    if element.tag in ("rect", "text"):
        x, y = float(element.get("x")), float(element.get("y"))
        return [(x, y), (x + float(element.get("width", 0)), y + float(element.get("height", 0)))]
    if element.tag == "path" and "L" in element.get("d"):
        return [tuple(map(float, p.split())) for p in re.split("[ML]", element.get("d")) if p]
    return []


class Files(unittest.TestCase):
    def test_a_partial_run_replaces_its_cases_only(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            store(folder, "stream", [canned_case("latency-block", 1), canned_case("latency-block", 64)])
            store(folder, "paper", [canned_case("5a", 1)])
            store(folder, "stream", [canned_case("latency-block", 64, ours=5.0)], is_partial=True)
            found = {(r["bench"], r["case"]): r["ours"] for r in results.load(folder) if r["case"].endswith("at 64, shm engine") or r["case"].endswith("at 1, shm engine")}
            self.assertEqual(found, {("stream", "latency-block at 1, shm engine"): 8.0, ("stream", "latency-block at 64, shm engine"): 5.0,
                                     ("paper", "5a at 1, shm engine"): 8.0})
            names = [c["name"] for c in results.load_details(folder)["stream"]["cases"]]
            self.assertEqual(sorted(names), ["latency-block at 1", "latency-block at 64"])

    def test_a_whole_run_replaces_all(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            store(folder, "stream", [canned_case("latency-block", 1)])
            store(folder, "stream", [canned_case("latency-block", 64)])
            self.assertEqual({r["case"].partition(",")[0] for r in results.load(folder)}, {"latency-block at 64"})


class Rounds(unittest.TestCase):
    def setUp(self):
        patch = unittest.mock.patch.object(machine, "line_ns", side_effect=itertools.count(45.0))
        patch.start()
        self.addCleanup(patch.stop)

    def test_ways_take_turns_in_coming_first(self):
        order = []
        canned_recorder().interleave("x", [ways.PLAIN, ways.USER, ways.SHM], lambda way: order.append(way), rounds=3)
        self.assertEqual(order, [ways.PLAIN, ways.USER, ways.SHM, ways.USER, ways.SHM, ways.PLAIN, ways.SHM, ways.PLAIN, ways.USER])

    def test_a_way_that_fails_is_left_out_and_named(self):
        def sample(way):
            if way == ways.USER:
                raise recorder.Failed("no luck")
            return {"v": 1.0}

        notes = canned_recorder()
        runs = notes.compare("latency-block", "case", 1, "us", "lower", [ways.PLAIN, ways.USER], sample, "v")
        self.assertEqual(list(runs), [ways.PLAIN])
        self.assertEqual(notes.problems, ["case: user engine: no luck"])
        self.assertEqual(list(notes.cases[0].samples), ["plain TCP"])
        self.assertEqual(notes.cases[0].line_ns, [45.0, 46.0, 47.0, 48.0, 49.0])

    def test_a_quick_run_thins(self):
        notes = canned_recorder()
        self.assertEqual(notes.thin(range(9)), list(range(9)))
        notes.is_quick = True
        self.assertEqual(notes.thin(range(9)), [0, 4, 8])


class Modes(unittest.TestCase):
    @staticmethod
    def case(*line_ns):
        return {"samples": {"a": [float(i) for i in range(len(line_ns))]}, "line_ns": list(line_ns)}

    def test_noise_is_one_mode(self):
        case = self.case(45, 44, 60, 80, 110)
        self.assertIsNone(modes.find([case]).split(case, "a"))
        self.assertIsNone(modes.find([{"samples": {"a": [1.0]}}]).border)

    def test_the_border_is_where_nothing_is(self):
        case = self.case(45, 370, 60, 390)
        found = modes.find([case, self.case(44, 44)])
        self.assertEqual(found.split(case, "a"), ([0.0, 2.0], [1.0, 3.0]))
        self.assertIsNone(found.split(self.case(44, 45), "a"), "one mode only")

    def test_a_round_of_which_nothing_is_known_is_of_neither(self):
        case = self.case(45, None, 375)
        self.assertEqual(modes.find([case]).split(case, "a"), ([0.0], [2.0]))

    def test_a_way_that_missed_rounds_is_left_alone(self):
        case = self.case(45, 370)
        case["samples"]["a"].pop()
        self.assertIsNone(modes.Modes(100).split(case, "a"))


class Names(unittest.TestCase):
    def test_sizes(self):
        self.assertEqual([figure.size_name(n) for n in (1, 1200, 1024, 1536, 65536, 80 << 20)], ["1 B", "1200 B", "1 KB", "1.5 KB", "64 KB", "80 MB"])

    def test_numbers(self):
        self.assertEqual([figure.number(n) for n in (0, 0.000297, 0.217, 5.919, 17.36, 986.4, 4978, 36512, 2.4e6)],
                         ["0", "0.00030", "0.217", "5.92", "17.4", "986", "4978", "36.5 k", "2.40 M"])


class Scales(unittest.TestCase):
    def test_log_axis(self):
        axis = svg.Axis([1, 100], 0, 200, is_log=True)
        self.assertEqual([axis.at(v) for v in (1, 10, 100)], [0, 100, 200])
        self.assertEqual(axis.ticks(), [1, 2, 5, 10, 20, 50, 100])

    def test_linear_axis_starts_at_zero(self):
        axis = svg.Axis([30, 40], 100, 0, is_log=False, from_zero=True)
        self.assertEqual(axis.at(0), 100)
        self.assertEqual(axis.ticks(), [0, 10, 20, 30, 40])


if __name__ == "__main__":
    unittest.main()
