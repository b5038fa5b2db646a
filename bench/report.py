#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Draws report.html, one page that needs nothing else, from what the benchmarks left in a folder.

`report.py [DIR]` draws the page of DIR (build/bench) again without measuring.
"""

import argparse
import pathlib
import re
import statistics
from html import escape

import machine
import modes
import results
import svg
import targets
import ways
from benches import BENCHES
from figure import number, size_name, speed

STYLES = {
    "plain TCP": svg.Style("tcp", "circle"),
    "plain TCP, default": svg.Style("tcp-default", "square"),
    "library loaded, rules off": svg.Style("off", "square"),
    "user engine": svg.Style("user", "square"),
    "shm engine": svg.Style("shm", "triangle"),
    "TCP + CRC": svg.Style("tcp-crc", "diamond"),
    "user engine, CRC off": svg.Style("user-plain", "diamond"),
    "user engine, message mode": svg.Style("user", "square"),
    "shm engine, message mode": svg.Style("shm", "triangle"),
    "a posted send, one way, shm engine": svg.Style("peer-c", "circle"),
    "siw": svg.Style("peer-a", "diamond"),
    "memcpy": svg.Style("tcp", "circle"),
    "plain TCP, asked and answered": svg.Style("tcp", "circle"),
    "UCX posix+cma": svg.Style("peer-a", "diamond"),
    "UCX tcp": svg.Style("peer-b", "square"),
    "libfabric shm": svg.Style("peer-c", "triangle"),
    "libfabric tcp": svg.Style("peer-d", "circle"),
}
OTHER = svg.Style("other", "diamond")
PUBLISHED = [svg.Style(f"published-{n}", shape) for n, shape in enumerate(("circle", "square", "triangle", "diamond"))]
# (label, bench, case): what the top of the page shows, if it was measured.
TILES = [("redis GET, one client", "redis", "GET 3 B, 1 client, pipeline 1, idle cores"),
         ("redis GET, fifty clients", "redis", "GET 3 B, 50 clients, pipeline 1, idle cores"),
         ("8 bytes one way, spinning", "stream", "latency 8 B spinning cubic"),
         ("80 MB transfer", "ripc", "transfer 80 MB")]


def median(case, way, aspect="samples"):
    values = case.get(aspect, {}).get(way)
    if not values:
        return None
    return statistics.median(values) if isinstance(values, list) else values


def place(figure, x):
    if isinstance(x, str):
        return x
    return size_name(x) if figure.is_x_bytes else number(x)


# ---- the figures of a benchmark


def draw_figure(bench, figure, cases, found_modes):
    """A figure, its sentence, its legend and its table; nothing if none of its cases was measured."""
    cases = [c for c in cases if c["figure"] == figure.key]
    if not cases:
        return ""
    if figure.kind == "lines":
        cases.sort(key=lambda c: c["x"])
    names = list(dict.fromkeys(way for case in cases for way, values in case["samples"].items() if values))
    drawn = ""
    if figure.kind != "table":
        picture = draw_lines(figure, cases, names) if figure.kind == "lines" else draw_bars(figure, cases, names)
        drawn = f"<p>{escape(sentence(figure, cases, names))}</p>{picture}{draw_legend(figure, names)}"
    note = f'<p class="note">{escape(figure.note)}</p>' if figure.note else ""
    return (f'<figure id="{bench}-{figure.key}" class="{figure.kind}"><div class="drawn"><h3>{escape(figure.title)}</h3>'
            f'{drawn}{note}</div>'
            f'<details open="open"><summary>Numbers</summary>{draw_table(figure, cases, names, found_modes)}</details></figure>')


def draw_lines(figure, cases, names):
    series = []
    for way in names:
        points = [(c["x"], *_quartiles_and_median(c["samples"][way])) for c in cases if c["samples"].get(way)]
        series.append((STYLES.get(way, OTHER), way, points))
    return svg.lines(series, list(zip(PUBLISHED, figure.published)), cases[0]["unit"], figure.x_label, figure.is_x_bytes,
                     figure.is_x_log, cases[0]["better"])


def _quartiles_and_median(samples):
    low, high = results.quartiles(samples)
    return low, statistics.median(samples), high


def draw_bars(figure, cases, names):
    groups = []
    for case in cases:
        lanes = []
        for way in names:
            times = None if way == figure.baseline else speed(case, way, figure.baseline, median)
            if times:
                lanes.append((STYLES.get(way, OTHER), way, times, f"{times_name(times)}\N{MULTIPLICATION SIGN} ({number(median(case, way))})"))
        if lanes:
            groups.append((str(case["x"]), lanes))
    return svg.bars(groups, figure.baseline) if groups else ""


def draw_legend(figure, names):
    entries = [(STYLES.get(way, OTHER), way) for way in names if figure.kind == "lines" or way != figure.baseline]
    entries += [(style, paper.name) for style, paper in zip(PUBLISHED, figure.published)]
    return '<ul class="legend">{}</ul>'.format("".join(
        f'<li><svg class="key {style.name}" viewBox="0 0 22 12"><path class="line" d="M1 6H21"/>'
        f'<g class="dot">{svg.mark(style.shape, 11, 6)}</g></svg>{escape(name)}</li>' for style, name in entries))


def sentence(figure, cases, names):
    """What the figure shows, in the numbers of this run."""
    said = []
    for way in (w for w in names if w in ways.OURS):
        times = [(speed(c, way, figure.baseline, median), place(figure, c["x"])) for c in cases]
        times = sorted((t, x) for t, x in times if t)
        if len(times) == 1:
            said.append(f"{way} {times_name(times[0][0])} times as good")
        elif times:
            (low, low_at), (high, high_at) = times[0], times[-1]
            said.append(f"{way} {times_name(low)} (at {low_at}) to {times_name(high)} (at {high_at}) times as good")
    return f"Against {figure.baseline}: {'; '.join(said)}." if said else "No engine of ours was measured here."


def times_name(value):
    return f"{value:.3g}" if value < 1000 else number(value)


def draw_table(figure, cases, names, found_modes):
    head = "".join(f"<th>{escape(way)}</th>" for way in names)
    rows = []
    for case in cases:
        cells = "".join(f"<td>{draw_cell(figure, case, way, found_modes)}</td>" for way in names)
        rows.append(f'<tr><th scope="row">{escape(place(figure, case["x"]))}</th>{cells}</tr>')
    per = cases[0]["per"]
    units = " or ".join(dict.fromkeys(c["unit"] for c in cases))
    details = [text for key, text in (("cpu_us", f"CPU time of both sides a {per}"), ("calls", f"system calls of both sides a {per}"))
               if any(c[key] for c in cases)]
    caption = f"Medians in {units}; below them quartiles" + "".join(f", {text}" for text in details) + "."
    return (f'<p class="note">{escape(caption)}</p><div class="scroll"><table><thead><tr><th></th>{head}</tr></thead>'
            f"<tbody>{''.join(rows)}</tbody></table></div>")


def draw_cell(figure, case, way, found_modes):
    value = median(case, way)
    if value is None:
        return ""
    times = None if way == figure.baseline or figure.kind == "table" else speed(case, way, figure.baseline, median)
    ratio = f' <i>{times_name(times)}\N{MULTIPLICATION SIGN}</i>' if times else ""
    low, high = results.quartiles(case["samples"][way])
    small = [f"{number(low)} to {number(high)}"] if len(case["samples"][way]) > 1 else []
    if figure.kind != "table" and (both := found_modes.medians(case, way)):
        small += [f"near {number(both[0])}, far {number(both[1])}"]
    cpu, calls = median(case, way, "cpu_us"), median(case, way, "calls")
    small += [f"{number(cpu)} us CPU"] if cpu is not None else []
    small += [f"{calls:.3g} calls"] if calls is not None else []
    return f"<span><b>{number(value)}</b>{ratio}</span><small>{'<br/>'.join(small)}</small>"


# ---- the page


def draw_section(name, module, details):
    found_modes = modes.find(details["cases"])
    figures = "".join(draw_figure(name, figure, details["cases"], found_modes) for figure in module.FIGURES)
    loads = [c["load"] for c in details["cases"]] or [0]
    days = sorted({c["when"] for c in details["cases"]})
    when = f"{days[0]} to {days[-1]}, " if days else ""
    told = modes.describe(details["cases"])
    line = f"a cache line to the other CPU and back: {told}, " if told else ""
    foot = (f"{when}{details['rounds']} interleaved rounds, {line} {details['minutes']} minutes, load average {min(loads)} to {max(loads)}, "
            f"{details['machine']['kernel']}, ddpsock {details['machine']['ddpsock']}.")
    problems = "".join(f'<p class="failed">Failed: {escape(p)}</p>' for p in details["problems"])
    return (f'<section id="{name}"><h2>{escape(module.TITLE)}</h2><p>{escape(module.QUESTION)}</p>{problems}'
            f'<div class="figures">{figures}</div><p class="foot">{escape(foot)}</p></section>')


def draw_rows_only(name, rows):
    """A benchmark of which results.json is all that is known."""
    body = "".join(f"<tr><th scope=\"row\">{escape(r['case'])}</th><td>{escape(r['unit'])}</td><td><b>{number(r['ours'])}</b></td>"
                   f"<td>{number(r['peer'])}</td><td>{escape(r['peer_name'])}</td><td>{'' if r['ratio'] is None else r['ratio']}</td>"
                   f"<td>{escape(r['better'])}</td></tr>" for r in rows)
    return (f'<section id="{escape(name)}"><h2>{escape(name)}</h2><div class="scroll"><table><thead><tr><th>case</th><th>unit</th><th>ours</th>'
            f'<th>peer</th><th>peer is</th><th>ratio</th><th>better</th></tr></thead><tbody>{body}</tbody></table></div></section>')


def draw_targets(verdicts):
    parts = []
    for engine, found in verdicts.items():
        rows = "".join(f'<tr class="{_mark(v)[0]}"><th scope="row">{escape(v.text)}{_draw_cause(v)}</th><td>{escape(v.wanted)}</td>'
                       f"<td>{escape(v.found)}</td><td>{_mark(v)[1]}</td></tr>" for v in found)
        parts.append(f'<h3>{escape(engine)}: {escape(count(found))}</h3><div class="scroll"><table class="targets"><thead><tr><th>what</th><th>target</th>'
                     f"<th>found</th><th></th></tr></thead><tbody>{rows}</tbody></table></div>")
    return ('<section id="targets"><h2>Targets, and where they are missed</h2><p>Ratios are ours to theirs in the unit of the case, so '
            f'for times less is better; both are medians of one interleaved run.</p>{"".join(parts)}</section>')


def _draw_cause(verdict):
    return f"<small>{escape(verdict.cause)}</small>" if verdict.is_met is False and verdict.cause else ""


def _mark(verdict):
    return {True: ("met", "met"), False: ("missed", "MISSED"), None: ("open", "")}[verdict.is_met]


def count(verdicts):
    met, missed = (sum(v.is_met is is_met for v in verdicts) for is_met in (True, False))
    unknown = len(verdicts) - met - missed
    return f"{met} of {len(verdicts)} met" + (f", {missed} missed" if missed else "") + (f", {unknown} not measured" if unknown else "")


def find_tiles(cases):
    """(label, times, engine) of what the top of the page shows and was measured, each by the fastest engine that we have."""
    tiles = []
    for label, bench, name in TILES:
        case = cases.get((bench, name), {"samples": {}})
        for way, engine in (("shm engine", "shared memory"), ("user engine", "the user engine")):
            if median(case, way) and (times := speed(case, way, "plain TCP", median)):
                tiles.append((label, times, engine))
                break
    return tiles


def headline(tiles):
    if not tiles:
        return "ddpsock measured against plain TCP"
    label, times, engine = tiles[0]
    return f"{label}: {times_name(times)} times plain TCP over {engine}"


def draw_tiles(tiles):
    drawn = "".join(f"<li><b>{times_name(times)}\N{MULTIPLICATION SIGN}</b><span>{escape(label)}</span><small>{engine}, plain TCP is 1</small></li>"
                    for label, times, engine in tiles)
    return f'<ul class="tiles">{drawn}</ul>' if drawn else ""


def draw_machine(details):
    facts = next((d["machine"] for d in details.values()), {})
    rows = "".join(f'<tr><th scope="row">{escape(str(k))}</th><td>{escape(str(v))}</td></tr>' for k, v in facts.items())
    minutes = sum(d["minutes"] for d in details.values())
    return (f'<section id="machine"><h2>How it was measured</h2><p>The ways of a case run in turns within each round, another one first in each; '
            f'medians are compared, the band or the small numbers are the quartiles; where the machine had two speeds between its CPUs within a case, near and far are the medians of each. All ways of a case run the same program with the same options under '
            f'the same congestion control. CPU time is of both sides; system calls are counted by strace in runs of their own. All of it took '
            f'{minutes:.0f} minutes.</p><div class="scroll"><table class="facts"><tbody>{rows}</tbody></table></div></section>')


def draw_page(details, rows):
    cases = {(bench, c["name"]): c for bench, d in details.items() for c in d["cases"]}
    verdicts = targets.judge_all(cases, {bench: modes.find(d["cases"]) for bench, d in details.items()})
    drawn = {name: (module.TITLE, draw_section(name, module, details[name])) for name, module in BENCHES.items() if name in details}
    for name in dict.fromkeys(r["bench"] for r in rows if r["bench"] not in drawn):
        drawn[name] = (name, draw_rows_only(name, [r for r in rows if r["bench"] == name]))
    links = [("targets", "Targets"), *((name, title) for name, (title, _) in drawn.items()), ("machine", "How it was measured")]
    nav = "".join(f'<a href="#{escape(name)}">{escape(title)}</a>' for name, title in links)
    is_quick = any(d["is_quick"] for d in details.values())
    banner = '<p class="failed">A quick run: it shows that everything runs; its numbers mean nothing.</p>' if is_quick else ""
    lead = "; ".join(f"{engine.lower()} {count(found)}" for engine, found in verdicts.items())
    tiles = find_tiles(cases)
    style = re.sub(r"/\*.*?\*/", "", (pathlib.Path(__file__).parent / "report.css").read_text(), flags=re.S)
    return ("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>"
            f"<title>ddpsock measured</title><style>{style}</style></head>\n<body><header><p class=\"kicker\">ddpsock, measured</p><h1>{escape(headline(tiles))}</h1>"
            f"<p class=\"lead\">Unmodified programs on one host, each way in turns in one run. Targets: {escape(lead)}.</p>{banner}{draw_tiles(tiles)}<nav>{nav}</nav></header>\n"
            f"<main>{draw_targets(verdicts)}\n{''.join(section for _, section in drawn.values())}\n{draw_machine(details)}</main></body></html>\n")


def write(folder):
    page = folder / "report.html"
    page.write_text(draw_page(results.load_details(folder), results.load(folder)))
    return page


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path, nargs="?", default=machine.BUILD / "bench")
    print(write(parser.parse_args().folder))


if __name__ == "__main__":
    main()
