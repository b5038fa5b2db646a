#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Keeps the tables of doc/interop.md what the code says they are.

matrix_doc.py PRINTER DOCUMENT          fails if they differ
matrix_doc.py --write PRINTER DOCUMENT  puts them right
"""

import argparse
import difflib
import pathlib
import subprocess
import sys

BEGIN = "<!-- handshake matrix: begin, made by tests/interop/matrix/matrix_doc.py -->\n"
END = "<!-- handshake matrix: end -->\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("printer", type=pathlib.Path)
    parser.add_argument("document", type=pathlib.Path)
    args = parser.parse_args()

    tables = subprocess.run([args.printer], check=True, capture_output=True, text=True).stdout
    text = args.document.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        sys.exit(f"{args.document.name}: the marks around the tables are missing")
    before, rest = text.split(BEGIN)
    shown, after = rest.split(END)
    if args.write:
        args.document.write_text(f"{before}{BEGIN}\n{tables}\n{END}{after}")
        return
    if shown != f"\n{tables}\n":
        print("".join(difflib.unified_diff(shown.splitlines(True), f"\n{tables}\n".splitlines(True),
                                           args.document.name, "the code", n=0)))
        sys.exit("the document and the code differ; run matrix_doc.py --write")


if __name__ == "__main__":
    main()
