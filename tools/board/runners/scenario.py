# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Plays one piece of a scenario of ours: a class of scenarios/SUITE.py whose methods `check_*` are its tests."""

import importlib
import os
import pathlib
import sys
import time
import traceback

BOARD = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(BOARD), str(BOARD / "scenarios")]

import events
import stage as stages


def checks(piece):
    """In the order in which they are written, those of base classes first."""
    names = dict.fromkeys(name for each in reversed(type(piece).__mro__) for name in vars(each) if name.startswith("check_"))
    return [(name.removeprefix("check_").replace("_", " "), getattr(piece, name)) for name in names]


def play(listed, stage, test, method):
    listed.start(test)
    begin = time.monotonic()
    try:
        method()
        verdict, detail = events.PASS, ""
    except stages.Skipped as why:
        verdict, detail = events.SKIP, str(why)
    except Exception as why:  # whatever went wrong, it is this test's
        verdict, detail = events.FAIL, str(why) if isinstance(why, stages.Failed) else traceback.format_exc()
        for process in stage.started:
            print(f"--- {' '.join(map(str, process.args))[:150]} ({process.poll()})\n{stage.said(process)}")
    listed.end(test, verdict, detail)
    print(f"{test}: {verdict} ({time.monotonic() - begin:.1f} s) {detail}", flush=True)


def main():
    listed, name = events.Events(os.environ["BOARD_EVENTS"]), os.environ["BOARD_PIECE"]
    module = importlib.import_module(sys.argv[1] if len(sys.argv) > 1 else os.environ["BOARD_SUITE"])
    folder = pathlib.Path(os.environ["BOARD_FOLDER"]) / f"stage{len(listed.begun)}"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    stage = stages.Stage(folder)
    piece = module.PIECES[name](stage)
    left = [(f"{name}: {check}", method) for check, method in checks(piece) if f"{name}: {check}" not in listed.begun]
    if not left:
        return
    start = f"{name}: starts" + (f" again before {left[0][0].partition(': ')[2]}" if listed.begun else "")
    play(listed, stage, start, piece.start)
    try:
        if events.outcomes(events.read(listed.path))[0][start][0] == events.PASS:
            for test, method in left:
                play(listed, stage, test, method)
            play(listed, stage, f"{name}: ends when asked to", piece.finish)
    finally:
        stage.end()


if __name__ == "__main__":
    main()
