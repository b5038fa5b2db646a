# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What was found, kept as JSON: one file for each suite and column. A piece is done once: for the same library, suite,
packages and column it is not run again."""

import dataclasses
import hashlib
import json
import os
import pathlib

import events
import room


def digest(*parts):
    whole = hashlib.sha256()
    for part in parts:
        whole.update(part if isinstance(part, bytes) else str(part).encode())
        whole.update(b"\0")
    return whole.hexdigest()[:16]


def of_files(paths):
    return digest(*(pathlib.Path(path).read_bytes() for path in paths))


@dataclasses.dataclass
class Results:
    """Of one suite in one column."""
    path: pathlib.Path
    version: str = ""  # of the suite
    library: str = ""  # the revision of what was last run here
    problem: str = ""  # why it was not run: what is the matter, a colon, and more about it
    pieces: dict = dataclasses.field(default_factory=dict)  # piece -> {key, seconds, tests: {name: [verdict, detail]}}

    def is_done(self, piece, key):
        return self.pieces.get(piece, {}).get("key") == key

    def tests(self, pieces=None):
        """test -> (verdict, detail)."""
        return {test: tuple(outcome) for piece, kept in self.pieces.items() if pieces is None or piece in pieces
                for test, outcome in kept["tests"].items()}

    def not_started(self):
        """The pieces that did not come to their tests: all that they said, but for their end, is that something went wrong."""
        return {piece for piece, kept in self.pieces.items() if not any(
            verdict in (events.PASS, events.SKIP, events.FLAKY) for test, (verdict, _) in kept["tests"].items() if not test.endswith(room.END))}

    def keep(self, piece, key, seconds, tests):
        self.pieces[piece] = {"key": key, "seconds": seconds, "tests": {test: list(outcome) for test, outcome in tests.items()}}
        self.save()

    def save(self):
        """Whole or not at all."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps({"version": self.version, "library": self.library, "problem": self.problem,
                                   "pieces": self.pieces}, indent=1))
        os.replace(new, self.path)


def load(folder, suite, column):
    path = folder / suite / f"{column}.json"
    if not path.exists():
        return Results(path)
    return Results(path, **json.loads(path.read_text()))
