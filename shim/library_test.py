#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the built library shows to the outside, and what must not be inside.

  library_test.py libddpsock.so calls.txt
"""

import subprocess
import sys
import unittest

LIBRARY, CALLS = sys.argv[1:3]


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class Library(unittest.TestCase):
    def test_exports_are_the_list_and_our_own(self):
        with open(CALLS, encoding='utf-8') as listed:
            expected = set(listed.read().split())
        exported = {line.split()[-1] for line in run('nm', '-D', '--defined-only', LIBRARY).splitlines()}
        ours = {name for name in exported if name.startswith('ddp_')}
        self.assertEqual(exported - ours, expected | {'__asan_default_options'})  # runtime.cpp

    def test_exports_have_no_version(self):
        exported = run('nm', '-D', '--defined-only', LIBRARY)
        self.assertNotIn('@', exported, 'a program that asks for read@GLIBC_2.2.5 would not find it')

    def test_needs_only_libc(self):
        needed = [line.split('[')[1].rstrip(']') for line in run('readelf', '-dW', LIBRARY).splitlines()
                  if '(NEEDED)' in line]
        self.assertEqual([n for n in needed if not n.startswith(('libc.so', 'ld-linux'))], [])

    def test_nothing_is_bound_late(self):
        self.assertIn('BIND_NOW', run('readelf', '-dW', LIBRARY))

    def test_no_exception_runtime_inside(self):
        symbols = {line.split()[-1] for line in run('nm', LIBRARY).splitlines()}
        for name in ('__cxa_allocate_exception', '__cxa_throw', '_Znwm', '_Unwind_RaiseException'):
            self.assertNotIn(name, symbols)

    def test_thread_local_storage_is_initial_exec(self):
        self.assertNotIn('__tls_get_addr', run('nm', '-D', '--undefined-only', LIBRARY))


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
