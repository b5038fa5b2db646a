# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One result, the statistics behind it, and the files it goes to."""

import dataclasses
import json
import statistics

import ways

MIN_ROUNDS = 5
# Two-sided 95 % quantiles of Student's t for n - 1 degrees of freedom; beyond the table it is the normal one.
T_95 = {4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 14: 2.145, 19: 2.093}


@dataclasses.dataclass
class Result:
    bench: str
    case: str
    unit: str
    ours: float
    peer: float
    peer_name: str
    better: str  # lower or higher
    ours_spread: str
    peer_spread: str

    def as_json(self):
        return {"bench": self.bench, "case": self.case, "unit": self.unit, "ours": round(self.ours, 4),
                "peer": round(self.peer, 4), "peer_name": self.peer_name,
                "ratio": round(self.ours / self.peer, 4) if self.peer else None, "better": self.better}


def compare(bench, case, unit, ours, peer, peer_name, better):
    """A result from the samples of both sides of one interleaved run."""
    return Result(bench, case, unit, statistics.median(ours), statistics.median(peer), peer_name, better,
                  spread(ours), spread(peer))


def of_case(bench, case):
    """What a recorded case says of each of our ways against each of its peers."""
    for name, unit, better, samples in _metrics(case):
        for ours in (w for w in samples if w in ways.OURS):
            for peer in (w for w in samples if w not in ways.OURS):
                yield compare(bench, f"{name}, {ours}", unit, samples[ours], samples[peer], peer, better)


def _metrics(case):
    yield case.name, case.unit, case.better, {w: v for w, v in case.samples.items() if v}
    yield f"{case.name}, CPU", f"us a {case.per}, both sides", "lower", {w: v for w, v in case.cpu_us.items() if v}
    calls = {way: [count] for way, count in case.calls.items()}
    yield f"{case.name}, system calls", f"calls a {case.per}, both sides", "lower", calls


def quartiles(samples):
    """The lower and the upper one, or both the only value there is."""
    if len(samples) < 2:
        return samples[0], samples[0]
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return low, high


def spread(samples):
    return "{:.4g}..{:.4g}".format(*quartiles(samples)) if len(samples) >= MIN_ROUNDS else ""


def confidence_95(samples):
    """The interval of the mean."""
    mean = statistics.fmean(samples)
    half = T_95.get(len(samples) - 1, 1.96) * statistics.stdev(samples) / len(samples) ** 0.5
    return mean - half, mean + half


def load(folder):
    path = folder / "results.json"
    return json.loads(path.read_text()) if path.exists() else []


def load_details(folder):
    """bench -> what its last run recorded beside results.json."""
    return {path.name.removesuffix(".samples.json"): json.loads(path.read_text())
            for path in sorted(folder.glob("*.samples.json"))}


def store(folder, bench, found, details, is_partial):
    """Replaces what the files say of this benchmark (of these cases only, if the run was partial)."""
    folder.mkdir(parents=True, exist_ok=True)
    new = [r.as_json() for r in found]
    fresh = {(r["case"], r["peer_name"]) for r in new}
    kept = [r for r in load(folder) if r["bench"] != bench or (is_partial and (r["case"], r["peer_name"]) not in fresh)]
    (folder / "results.json").write_text("[\n" + ",\n".join(json.dumps(r) for r in kept + new) + "\n]\n")
    if is_partial:
        before = load_details(folder).get(bench, {}).get("cases", [])
        names = {(c["figure"], c["name"]) for c in details["cases"]}
        details = {**details, "cases": [c for c in before if (c["figure"], c["name"]) not in names] + details["cases"]}
    (folder / f"{bench}.samples.json").write_text(json.dumps(details, indent=1) + "\n")

