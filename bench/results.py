# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One result, the statistics behind it, and the files it goes to."""

import dataclasses
import json
import statistics

import machine

RESULTS = machine.BUILD / "bench" / "results.json"
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


def spread(samples):
    if len(samples) < MIN_ROUNDS:
        return ""
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return f"{low:.4g}..{high:.4g}"


def confidence_95(samples):
    """The interval of the mean."""
    mean = statistics.fmean(samples)
    half = T_95.get(len(samples) - 1, 1.96) * statistics.stdev(samples) / len(samples) ** 0.5
    return mean - half, mean + half


def store(bench, found, samples, facts, is_partial):
    """Replaces what the file says of this benchmark (of these cases only, if the run was partial)."""
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    new = [r.as_json() for r in found]
    fresh = {(r["case"], r["peer_name"]) for r in new}
    kept = [r for r in kept if r["bench"] != bench or (is_partial and (r["case"], r["peer_name"]) not in fresh)]
    RESULTS.write_text("[\n" + ",\n".join(json.dumps(r) for r in kept + new) + "\n]\n")
    detail = {"machine": facts, "samples": samples}
    RESULTS.with_name(f"{bench}.samples.json").write_text(json.dumps(detail, indent=1) + "\n")


def render(found):
    rows = [("case", "unit", "ours", "quartiles", "peer", "quartiles", "peer is", "ratio", "better")]
    for r in found:
        ratio = f"{r.ours / r.peer:.3f}" if r.peer else "-"
        rows.append((r.case, r.unit, f"{r.ours:.4g}", r.ours_spread, f"{r.peer:.4g}", r.peer_spread, r.peer_name,
                     ratio, r.better))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths)).rstrip() for row in rows)
