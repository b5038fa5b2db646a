#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Unit tests of generate.py."""

import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True
import generate  # noqa: E402


def parse_one(line):
    return generate.parse(line)[0]


class Parsing(unittest.TestCase):
    def test_declaration(self):
        call = parse_one('ssize_t read(int fd, void* buffer, size_t size) | fd | alias=__read')
        self.assertEqual(call.result, 'ssize_t')
        self.assertEqual(call.arg_list, 'fd, buffer, size')
        self.assertEqual([p.type for p in call.params], ['int', 'void*', 'size_t'])
        self.assertEqual(call.names, ['read', '__read'])

    def test_underscores_leave_the_member_name_only(self):
        call = parse_one('int __f(int fd) | fd')
        self.assertEqual((call.name, call.member), ('__f', 'f'))

    def test_types_of_two_words_and_pointers(self):
        call = parse_one('int f(const msghdr* message, unsigned long request) | own')
        self.assertEqual([p.type for p in call.params], ['const msghdr*', 'unsigned long'])

    def test_refused(self):
        for line, why in [
            ('int f(int fd)', 'expected'),
            ('int f int fd | fd', 'not a declaration'),
            ('int f(int) | fd', 'not a parameter'),
            ('int f(int fd) | maybe', 'unknown body'),
            ('int f(int fd) | fd | colour=red', 'unknown option'),
            ('int f(int fd) | fd | alias', 'unknown option'),
            ('int f(int set) | fd', 'no argument fd'),
            ('int f(int fd, ...) | fd', 'only own, hand and wide NAME'),
            ('int f(FILE* file, ...) | wide', 'only own, hand and wide NAME'),
            ('int f(FILE* stream) | wide', 'no argument file'),
            ('int f(int fd) | own\nint g(int fd) | own | alias=f', 'twice'),
        ]:
            with self.subTest(line), self.assertRaisesRegex(generate.ListError, why):
                generate.parse(line)

    def test_no_parameters(self):
        self.assertEqual(parse_one('int f() | own').params, [])

    def test_error_names_the_line(self):
        with self.assertRaisesRegex(generate.ListError, 'calls.list:3:'):
            generate.parse('# a comment\n\nnonsense\n')


class Writing(unittest.TestCase):
    def test_body_fd_looks_at_the_named_argument(self):
        calls = generate.parse('int f(int set, int in) | fd | fd=in')
        self.assertEqual(generate.wrapper_body(calls[0], calls),
                         'return is_ours(in) ? whole([=] { return chosen_f(set, in); }) : real.f(set, in);')

    def test_fortified_twin_keeps_the_check(self):
        calls = generate.parse('int f(int fd, int n) | fd\n'
                               'int __f_chk(int fd, int n, int room) | as f unless n > room')
        self.assertEqual(generate.wrapper_body(calls[1], calls),
                         'return is_ours(fd) && !(n > room) ? whole([=] { return chosen_f(fd, n); }) '
                         ': real.f_chk(fd, n, room);')

    def test_twin_of_nothing_is_refused(self):
        calls = generate.parse('int __f_chk(int fd) | as f unless true')
        with self.assertRaises(generate.ListError):
            generate.wrapper_body(calls[0], calls)

    def test_what_names_a_descriptor_is_made_whole(self):
        calls = generate.parse('int f(int fd, int n) | own\nint g(int n) | own')
        self.assertEqual(generate.wrapper_body(calls[0], calls), 'return whole([=] { return own_f(fd, n); });')
        self.assertEqual(generate.wrapper_body(calls[1], calls), 'return own_g(n);')

    def test_what_is_no_concern_of_ours_passes(self):
        calls = generate.parse('int f(int fd, int n) | own if n == 1 or n == 2\nint g(int fd) | stream\n'
                               'int __f_chk(int fd, int n, int room) | as f unless n > room')
        self.assertEqual(generate.wrapper_body(calls[0], calls),
                         'return n == 1 or n == 2 ? whole([=] { return own_f(fd, n); }) : real.f(fd, n);')
        self.assertIn('int own_f(int fd, int n);', generate.write_calls_h(calls))
        self.assertEqual(generate.wrapper_body(calls[1], calls),
                         'return is_served(fd) ? whole([=] { return chosen_g(fd); }) : real.g(fd);')
        self.assertIn('int chosen_g(int fd);', generate.write_calls_h(calls))
        self.assertEqual(generate.wrapper_body(calls[2], calls),
                         'return (n == 1 or n == 2) && !(n > room) ? whole([=] { return own_f(fd, n); }) : real.f_chk(fd, n, room);')

    def test_variadic_is_so_in_the_real_table(self):
        calls = generate.parse('int f(int fd, int op, void* more) | own | variadic=2')
        self.assertIn('int (*f)(int, int, ...);', generate.write_real_h(calls))
        self.assertIn('va_arg(rest, void*)', generate.write_boot(calls))

    def test_boot_call_by_another_number(self):
        calls = generate.parse('int f(int fd, int n) | own | boot=g(fd,0)')
        self.assertIn('kernel_call(SYS_g, fd,0)', generate.write_boot(calls))

    def test_boot_call_without_a_system_call_fills_the_table(self):
        calls = generate.parse('int f(int fd) | own | boot=resolve')
        self.assertIn('resolve_real_calls();\n  return real.f(fd);', generate.write_boot(calls))

    def test_what_is_written_by_hand_is_only_exported(self):
        calls = generate.parse('long f(long number, ...) | hand')
        self.assertEqual(generate.write_names(calls), 'f\n')
        for text in (generate.write_wrappers(calls), generate.write_calls_h(calls), generate.write_real_h(calls)):
            self.assertNotRegex(text, r'\bf\(|wrap_f')

    def test_open_parameters_reach_the_body_as_a_list(self):
        calls = generate.parse('int f(int fd, ...) | own')
        self.assertIn('int wrap_f(int fd, ...) __asm__("f");', generate.write_wrappers(calls))
        self.assertIn('va_start(rest, fd); const int result = own_f(fd, rest);',
                      generate.wrapper_body(calls[0], calls))
        self.assertIn('int own_f(int fd, va_list rest);', generate.write_calls_h(calls))
        self.assertNotIn('(*f)', generate.write_real_h(calls))
        self.assertNotIn('boot_f', generate.write_boot(calls))

    def test_open_parameters_of_a_call_without_a_result(self):
        calls = generate.parse('void f(int n, ...) | own')
        self.assertEqual(generate.wrapper_body(calls[0], calls), 'va_list rest; va_start(rest, n); own_f(n, rest); va_end(rest);')


    def test_files_are_made_fit_for_wide_characters(self):
        calls = generate.parse('int f(int c, FILE* file) | wide\nint g(int c) | wide | on=stdout\n'
                               'int h(FILE* file, ...) | wide __vh')
        self.assertEqual(generate.wrapper_body(calls[0], calls), 'return real.f(c, fit_for_wide(file));')
        self.assertEqual(generate.wrapper_body(calls[1], calls), 'fit_for_wide(stdout); return real.g(c);')
        self.assertIn('va_start(rest, file); const int result = real.vh(fit_for_wide(file), rest);',
                      generate.wrapper_body(calls[2], calls))
        self.assertNotIn('(*h)', generate.write_real_h(calls))


class TheList(unittest.TestCase):
    def test_every_file_can_be_written(self):
        calls = generate.parse((HERE / 'calls.list').read_text(encoding='utf-8'))
        names = generate.write_names(calls).split()
        self.assertEqual(names, sorted(set(names)))
        for name in names:
            self.assertIn(f'\n    {name};\n', generate.write_map(calls))
        for name in (n for c in generate.wrapped_calls(calls) for n in c.names):
            self.assertIn(f'__asm__("{name}")', generate.write_wrappers(calls))


if __name__ == '__main__':
    unittest.main()
