#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The kernel's cache and the edit of siw, without building a kernel."""

import os
import pathlib
import sys
import tempfile
import threading
import unittest
import unittest.mock

sys.dont_write_bytecode = True

import kernel
from kernel import recipe, siw_edit


def upstream():
    """siw's files as far as the edit looks at them."""
    texts = {"siw_main.c": [], "siw_cm.c": [], "siw.h": [f"extern const bool {n};" for n in siw_edit.EXTERNS]}
    for file, _, _, line in siw_edit.PARAMETERS:
        texts[file].append(line)
    return {name: "\n".join(["/* before */", *lines, "/* after */", ""]) for name, lines in texts.items()}


class SiwEdit(unittest.TestCase):
    def test_makes_parameters_and_keeps_defaults(self):
        edited = siw_edit.edited(upstream())
        self.assertIn("bool zcopy_tx = true;\nmodule_param(zcopy_tx, bool, 0644);\n", edited["siw_main.c"])
        self.assertIn("\nbool mpa_crc_required;\n", edited["siw_main.c"])
        self.assertIn("\nextern bool mpa_crc_required;\n", edited["siw.h"])
        self.assertNotIn("const", "".join(edited.values()))
        for name, text in upstream().items():
            changed = [line for line in edited[name].split("\n") if "module_param" not in line]
            self.assertEqual([line.replace("const ", "") for line in text.split("\n")], changed)

    def test_refuses_a_line_that_is_missing(self):
        for file, name, _, line in siw_edit.PARAMETERS:
            texts = upstream()
            texts[file] = texts[file].replace(line + "\n", "")
            with self.assertRaisesRegex(siw_edit.EditError, f"0 lines read '.*{name}"):
                siw_edit.edited(texts)

    def test_refuses_a_line_that_is_there_twice(self):
        for file, text in upstream().items():
            line = text.split("\n")[1]
            with self.assertRaisesRegex(siw_edit.EditError, "2 lines read"):
                siw_edit.edited({**upstream(), file: f"{text}{line}\n"})


class Configuration(unittest.TestCase):
    def test_names_the_options_that_were_dropped(self):
        wanted = "# words\nCONFIG_A=y\nCONFIG_B=y\n# CONFIG_C is not set\n# CONFIG_D is not set\n"
        self.assertEqual(recipe.lost_lines(wanted, "CONFIG_A=y\nCONFIG_C=y\n# CONFIG_B is not set\n"),
                         ["CONFIG_B=y", "# CONFIG_C is not set"])
        self.assertEqual(recipe.lost_lines(wanted, "CONFIG_A=y\nCONFIG_B=y\n"), [])


class Cache(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.place = pathlib.Path(folder.name)
        environment = unittest.mock.patch.dict(os.environ, {"DDPSOCK_LAB_CACHE": folder.name})
        environment.start()
        self.addCleanup(environment.stop)
        os.environ.pop("DDPSOCK_LAB_KERNEL", None)
        key = unittest.mock.patch.object(kernel, "key", lambda: "0123")
        key.start()
        self.addCleanup(key.stop)
        self.made = 0

    def make(self, folder, log_path, jobs, say):
        self.made += 1
        (folder / "image").write_text("a kernel")
        (folder / ".config").write_text("CONFIG_A=y")
        return folder / "image", folder / ".config"

    def test_a_missing_kernel_names_the_command_that_makes_it(self):
        with self.assertRaisesRegex(kernel.KernelError, "run ./dev lab build"):
            kernel.image()

    def test_is_built_once(self):
        for _ in range(2):
            path = kernel.build(1, lambda text: None, self.make)
        self.assertEqual(self.made, 1)
        self.assertEqual(path, kernel.image())
        self.assertEqual(path.read_text(), "a kernel")
        self.assertFalse((self.place / "0123.part").exists())

    def test_an_interrupted_build_leaves_nothing_that_looks_finished(self):
        def interrupted(folder, *rest):
            self.make(folder, *rest)
            raise KeyboardInterrupt
        with self.assertRaises(KeyboardInterrupt):
            kernel.build(1, lambda text: None, interrupted)
        with self.assertRaises(kernel.KernelError):
            kernel.image()
        kernel.build(1, lambda text: None, self.make)
        self.assertEqual(kernel.image().read_text(), "a kernel")

    def test_so_does_one_interrupted_while_it_is_put_in_its_place(self):
        copy = kernel.shutil.copy

        def interrupted(source, target):
            if target.name == "config":
                raise KeyboardInterrupt
            copy(source, target)

        with unittest.mock.patch.object(kernel.shutil, "copy", interrupted), self.assertRaises(KeyboardInterrupt):
            kernel.build(1, lambda text: None, self.make)
        with self.assertRaises(kernel.KernelError):
            kernel.image()

    def test_a_failed_build_tells_the_end_of_its_log(self):
        def failing(folder, *rest):
            raise recipe.RecipeError("make ended with status 2; no rule")
        with self.assertRaisesRegex(kernel.KernelError, "no rule"):
            kernel.build(1, lambda text: None, failing)

    def test_a_second_build_waits_for_the_first(self):
        began, may_end, told = threading.Event(), threading.Event(), threading.Event()

        def slow(*arguments):
            began.set()
            self.assertTrue(may_end.wait(10))
            return self.make(*arguments)

        first = threading.Thread(target=kernel.build, args=(1, lambda text: None, slow))
        first.start()
        self.assertTrue(began.wait(10))
        second = threading.Thread(target=kernel.build, args=(1, lambda text: told.set(), slow))
        second.start()
        self.assertTrue(told.wait(10))
        self.assertEqual(self.made, 0)
        may_end.set()
        first.join(10)
        second.join(10)
        self.assertEqual(self.made, 1)


class Key(unittest.TestCase):
    def test_changes_with_what_goes_in(self):
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.object(kernel, "_output", lambda *c: "1"), \
                unittest.mock.patch.object(kernel, "HERE", pathlib.Path(folder)):
            for name in ("config", "recipe.py", "siw_edit.py"):
                (pathlib.Path(folder) / name).write_text("one")
            keys = {kernel.key()}
            for name in ("config", "recipe.py", "siw_edit.py"):
                (pathlib.Path(folder) / name).write_text("two")
                keys.add(kernel.key())
            with unittest.mock.patch.object(kernel, "_output", lambda *c: "2"):
                keys.add(kernel.key())
        self.assertEqual(len(keys), 5)


if __name__ == "__main__":
    unittest.main()
