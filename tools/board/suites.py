# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a suite is: suites/NAME.toml, read and checked."""

import dataclasses
import pathlib
import tomllib

FOLDER = pathlib.Path(__file__).resolve().parent
SUITES = FOLDER / "suites"


class BadSuite(Exception):
    pass


@dataclasses.dataclass(frozen=True)
class Suite:
    name: str
    title: str
    runner: str  # of runners/
    packages: tuple[str, ...]  # of Debian; the first names the version
    pieces: tuple[str, ...]  # what is run, kept and repeated as one
    source: str = ""  # a source package, unpacked for the runner
    given: str = ""  # an environment variable that names the folder where somebody has installed it: it is no package
    build_packages: tuple[str, ...] = ()  # what the runner needs to build it
    over: tuple[str, ...] = ()  # packages that are laid over the system in the room, where another version may be installed
    ends: int = 2  # 1: the test programs are both ends in one process
    short: tuple[str, ...] = ()  # the pieces of the short slice
    short_columns: tuple[str, ...] = ()
    test_seconds: int = 60
    piece_seconds: int = 600
    leave_out: tuple[str, ...] = ()  # patterns of test names
    leave_out_why: str = ""
    options: dict = dataclasses.field(default_factory=dict)  # the runner's own
    not_in: dict = dataclasses.field(default_factory=dict)  # column -> why it makes no sense there

    def dash(self, column):
        """Why the suite does not run in the column, or None."""
        if why := self.not_in.get(column.name):
            return why
        if self.ends == 1 and not column.fits_one_process():
            return "both ends are one program"
        return None

    def identity(self):
        """What decides how a piece ends, beside files(): not which other pieces there are, nor what is said about it."""
        return [self.ends, self.test_seconds, self.piece_seconds, self.leave_out, sorted(self.options.items()), *([self.over] if self.over else [])]

    def files(self):
        """What the suite is made of here: results of other contents are not its."""
        yield FOLDER / "runners" / f"{self.runner}.py"
        if self.runner == "scenario":
            yield FOLDER / "scenarios" / f"{self.name}.py"
            yield FOLDER / "stage.py"


def read(path):
    with open(path, "rb") as file:
        said = tomllib.load(file)
    known = {field.name for field in dataclasses.fields(Suite)} - {"name"}
    if unknown := set(said) - known:
        raise BadSuite(f"{path.name}: what is {', '.join(sorted(unknown))}?")
    try:
        suite = Suite(name=path.stem, **{key: tuple(value) if isinstance(value, list) else value for key, value in said.items()})
    except TypeError as error:
        raise BadSuite(f"{path.name}: {error}") from None
    if stray := set(suite.short) - set(suite.pieces):
        raise BadSuite(f"{path.name}: no piece {', '.join(sorted(stray))}")
    if bool(suite.leave_out) != bool(suite.leave_out_why):
        raise BadSuite(f"{path.name}: leave_out and leave_out_why go together")
    if missing := [file.name for file in suite.files() if not file.exists()]:
        raise BadSuite(f"{path.name}: there is no {', '.join(missing)}")
    return suite


def read_all():
    return {path.stem: read(path) for path in sorted(SUITES.glob("*.toml"))}
