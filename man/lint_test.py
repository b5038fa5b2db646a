#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The pages are well-formed, and say of ddpsock.h what it says.

  lint_test.py HEADER PAGE...
"""

import pathlib
import re
import subprocess
import sys
import unittest

HEADER, *PAGES = map(pathlib.Path, sys.argv[1:])


def formatted(page, *options):
    return subprocess.run(["groff", "-man", "-ww", "-Tascii", "-P-cbou", "-rLL=2000n", *options, str(page)],
                          capture_output=True, text=True, check=True)


def squeezed(text):
    """Without what differs in layout only."""
    return re.sub(r"\s*([(){},;*])\s*", r"\1", " ".join(text.split()))


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.commented = re.findall(r"/\*((?:(?!\*/).)*)\*/\n((?:DDP_CALL [^;]*;\n)+)", HEADER.read_text(), re.DOTALL)
        header = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.DOTALL)
        cls.calls = [squeezed(call) for call in re.findall(r"DDP_CALL (\w[^;#]*;)", header)]
        cls.structures = [squeezed(body) for body in re.findall(r"^struct ddp_(?:region|completion|\w+_work) \{.*?^\};",
                                                                header, re.DOTALL | re.MULTILINE)]
        cls.constants = set(re.findall(r"^#define (DDP_\w+) |^  (DDP_\w+) =", header, re.MULTILINE))
        cls.constants = {name for pair in cls.constants for name in pair if name}
        cls.text = {page.name: formatted(page).stdout for page in PAGES}
        cls.all = squeezed(" ".join(cls.text.values()))

    def test_no_warnings(self):
        for page in PAGES:
            with self.subTest(page=page.name):
                self.assertEqual(formatted(page, "-z").stderr, "")

    def test_every_call_is_declared_as_in_the_header(self):
        self.assertGreater(len(self.calls), 10)
        for call in self.calls:
            self.assertIn(call, self.all)

    def test_every_error_is_on_the_page_of_its_call(self):
        self.assertGreater(len(self.commented), 5)
        for comment, calls in self.commented:
            for call in re.findall(r"DDP_CALL (\w[^;]*;)", calls):
                page = next((text for text in self.text.values() if squeezed(call) in squeezed(text)), "")
                named = set(re.findall(r"\bE[A-Z0-9]{3,}\b", page))
                self.assertEqual(set(re.findall(r"\bE[A-Z0-9]{3,}\b", comment)) - named, set(), call)

    def test_every_structure_is_as_in_the_header(self):
        self.assertGreater(len(self.structures), 5)
        for structure in self.structures:
            self.assertIn(structure, self.all)

    def test_every_constant_is_named(self):
        self.assertIn("DDP_FENCE", self.constants)
        left = {"DDP_ROLE_AUTO", "DDP_ROLE_INITIATOR", "DDP_ROLE_RESPONDER", "DDP_CALL"}
        self.assertEqual({name for name in self.constants - left if not re.search(rf"\b{name}\b", self.all)}, set())

    def test_pages_named_are_there(self):
        ours = {page.name for page in PAGES} | {f"{call.split('(')[0].split()[-1].split('*')[-1]}.3" for call in self.calls}
        ours.add("ddp_is_loaded.3")
        for page, text in self.text.items():
            named = {f"{name}.{section}" for name, section in re.findall(r"\b(ddp[\w-]*)\s?\((\d)\)", text)}
            self.assertEqual(named - ours, set(), page)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
