#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Names, for ninja, the files that the tests of some suites need, of a build folder that need not be built.

usage: test_targets.py BUILD SUITE...
"""

import json
import os
import subprocess
import sys


def introspect(build, what):
    return json.loads(subprocess.run(["meson", "introspect", build, what], check=True, stdout=subprocess.PIPE).stdout)


def files_needed(tests, targets, suites):
    """Suites are known as SUITE or PROJECT:SUITE."""
    filenames = {target["id"]: target["filename"] for target in targets}
    chosen = [test for test in tests if suites & {name.rsplit(":", 1)[-1] for name in test["suite"]}]
    return sorted({name for test in chosen for target in test["depends"] for name in filenames[target]})


def main(build, *suites):
    names = files_needed(introspect(build, "--tests"), introspect(build, "--targets"), set(suites))
    if not names:
        sys.exit(f"test_targets: no test of {build} is in {' '.join(suites)}")
    print("\n".join(os.path.relpath(name, build) for name in names))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
