#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Derives from calls.list everything that must name every intercepted call.

  generate.py calls.list OUTPUT_DIRECTORY

writes calls.h (declarations of the hand-written bodies), real_calls.h (the table of real
functions), boot_calls.cpp (the table's first content and the names), wrappers.cpp, exports.map
(version script) and calls.txt (the exported names, one a line, sorted).
"""

import pathlib
import re
import sys
from dataclasses import dataclass, field

LICENCE = '// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause\n'
BANNER = LICENCE + '// Generated from shim/calls.list. Do not edit.\n'


class ListError(Exception):
    pass


@dataclass
class Param:
    type: str
    name: str

    def __str__(self):
        return f'{self.type} {self.name}'


@dataclass
class Call:
    result: str
    name: str
    params: list
    body: str
    options: dict = field(default_factory=dict)
    is_open: bool = False  # the parameters end in "..."

    @property
    def member(self):
        """The name without the underscores that C++ reserves."""
        return self.name.strip('_')

    @property
    def param_list(self):
        return ', '.join(str(p) for p in self.params)

    @property
    def arg_list(self):
        return ', '.join(p.name for p in self.params)

    @property
    def libc_params(self):
        """The parameters as the wrapper has them: libc's own."""
        return self.param_list + (', ...' if self.is_open else '')

    @property
    def own_params(self):
        """The parameters of the hand-written body."""
        return self.param_list + (', va_list rest' if self.is_open else '')

    @property
    def real_types(self):
        types = [p.type for p in self.params]
        if 'variadic' in self.options:
            types[int(self.options['variadic']):] = ['...']
        return ', '.join(types)

    @property
    def is_on_descriptor(self):
        return any(p.name in DESCRIPTORS for p in self.params)

    @property
    def names(self):
        return [self.name] + [a for a in self.options.get('alias', '').split(',') if a]


DECLARATION = re.compile(r'^(?P<result>\w[\w ]*?\**)\s+(?P<name>\w+)\((?P<params>[^()]*)\)$')
PARAM = re.compile(r'^(?P<type>.*[\s*])(?P<name>\w+)$')
DESCRIPTORS = {'fd', 'fds', 'set', 'readers', 'first'}
# body -> what is asked about the descriptor before a call is any of ours.
QUESTIONS = {'fd': 'is_ours', 'stream': 'is_served'}
OPTIONS = {'alias', 'fd', 'on', 'boot', 'variadic'}


def parse_line(line):
    fields = [f.strip() for f in line.split('|')]
    if len(fields) not in (2, 3):
        raise ListError('expected: declaration | body | options')
    found = DECLARATION.match(fields[0])
    if not found:
        raise ListError(f'not a declaration: {fields[0]}')
    params = []
    texts = found['params'].split(',')
    is_open = texts[-1].strip() == '...'
    if texts == ['']:
        texts = []
    for text in texts[:-1] if is_open else texts:
        param = PARAM.match(text.strip())
        if not param:
            raise ListError(f'not a parameter: {text.strip()}')
        params.append(Param(param['type'].strip(), param['name']))
    options = {}
    for option in fields[2].split() if len(fields) == 3 else []:
        key, _, value = option.partition('=')
        if key not in OPTIONS or not value:
            raise ListError(f'unknown option: {option}')
        options[key] = value
    call = Call(found['result'], found['name'], params, fields[1], options, is_open)
    if not re.match(r'^(fd|stream|own|own if .+|hand|wide|wide \w+|as \w+.* unless .+)$', call.body):
        raise ListError(f'unknown body: {call.body}')
    if is_open and call.body not in ('own', 'hand') and not call.body.startswith('wide '):
        raise ListError(f'{call.name} ends in "...": only own, hand and wide NAME can have that')
    if call.body.startswith('wide') and 'on' not in options and 'file' not in [p.name for p in params]:
        raise ListError(f'{call.name} has no argument file')
    if call.body in QUESTIONS and options.get('fd', 'fd') not in [p.name for p in params]:
        raise ListError(f'{call.name} has no argument {options.get("fd", "fd")}')
    return call


def parse(text):
    calls = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith('#'):
            continue
        try:
            calls.append(parse_line(line))
        except ListError as error:
            raise ListError(f'calls.list:{number}: {error}') from None
    names = [n for c in calls for n in c.names]
    for name in names:
        if names.count(name) > 1:
            raise ListError(f'calls.list: {name} is declared twice')
    return calls


def split_as(call, calls):
    """(the call whose twin this is, its arguments, the condition) of body `as`."""
    found = re.match(r'^as (?P<base>\w+)(\((?P<args>[^()]*)\))? unless (?P<condition>.+)$', call.body)
    base = next((c for c in calls if c.name == found['base']), None)
    if base is None or base.body.startswith('as'):
        raise ListError(f'{call.name}: no call {found["base"]} to be the twin of')
    args = found['args'].replace(',', ', ') if found['args'] else base.arg_list
    return base, args, found['condition']


def wide_body(call):
    """Body `wide`: libc's own call, with a FILE that is fit for it."""
    args = ', '.join('fit_for_wide(file)' if p.name == 'file' else p.name for p in call.params)
    first = f'fit_for_wide({call.options["on"]}); ' if 'on' in call.options else ''
    if not call.is_open:
        return f'{first}return real.{call.member}({args});'
    twin = call.body.split()[1].strip('_')
    return (f'{first}va_list rest; va_start(rest, {call.params[-1].name}); const {call.result} result = '
            f'real.{twin}({args}, rest); va_end(rest); return result;')


def whole(call):
    """The call, which no thread is cancelled in the middle of (cancel_type.h)."""
    return f'whole([=] {{ return {call}; }})'


def concerned(call):
    """(when a call is ours to serve, what serves it)."""
    if call.body.startswith('own'):
        return call.body.removeprefix('own').removeprefix(' if '), f'own_{call.member}'
    return f'{QUESTIONS[call.body]}({call.options.get("fd", "fd")})', f'chosen_{call.member}'


def wrapper_body(call, calls):
    real = f'real.{call.member}({call.arg_list})'
    if call.body.startswith('wide'):
        return wide_body(call)
    if call.is_open:
        own = f'own_{call.member}({call.arg_list}, rest);'
        kept, given = ('', '') if call.result == 'void' else (f'const {call.result} result = ', ' return result;')
        return f'va_list rest; va_start(rest, {call.params[-1].name}); {kept}{own} va_end(rest);{given}'
    base, args, refused = split_as(call, calls) if call.body.startswith('as') else (call, call.arg_list, '')
    when, served_by = concerned(base)
    served = f'{served_by}({args})'
    if base.is_on_descriptor:
        served = whole(served)
    if refused:
        when = f'({when}) && !({refused})' if ' or ' in when else ' && '.join([when] * bool(when) + [f'!({refused})'])
    return f'return {when} ? {served} : {real};' if when else f'return {served};'


def wrapped_calls(calls):
    """Those whose wrapper is written here."""
    return [c for c in calls if c.body != 'hand']


def real_calls(calls):
    """Those whose next definition is called; a body with "..." calls that of its va_list twin."""
    return [c for c in wrapped_calls(calls) if not c.is_open]


def write_wrappers(calls):
    out = [BANNER, '''#include <fcntl.h>
#include <stdarg.h>

#include "ddpsock/ddpsock.h"
#include "shim/calls.h"
#include "shim/cancel_type.h"
#include "shim/fd_table.h"
#include "shim/real.h"
#include "shim/calls/stdio_files.h"

// Defined under names of our own and exported under libc's by asm labels: libc's headers may then
// declare, inline or rename these functions as they like.
#define DDPSOCK_EXPORT extern "C" __attribute__((visibility("default")))

namespace ddpsock::shim {
''']
    for call in wrapped_calls(calls):
        out.append(f'DDPSOCK_EXPORT {call.result} wrap_{call.member}({call.libc_params}) '
                   f'__asm__("{call.name}");')
        out.append(f'{call.result} wrap_{call.member}({call.libc_params}) '
                   f'{{ {wrapper_body(call, calls)} }}')
        for alias in call.names[1:]:
            out.append(f'DDPSOCK_EXPORT {call.result} wrap_alias_{alias.strip("_")}_{alias.count("_")}'
                       f'({call.libc_params}) __asm__("{alias}") '
                       f'__attribute__((alias("{call.name}")));')
        out.append('')
    out.append('}  // namespace ddpsock::shim')
    return '\n'.join(out) + '\n'


def write_calls_h(calls):
    out = [BANNER, '''#ifndef DDPSOCK_SHIM_CALLS_H_
#define DDPSOCK_SHIM_CALLS_H_

#include "shim/libc_types.h"

namespace ddpsock::shim {
''']
    for call in calls:
        prefix = {'own': 'own', **dict.fromkeys(QUESTIONS, 'chosen')}.get(call.body.split(' ')[0])
        if prefix:
            out.append(f'{call.result} {prefix}_{call.member}({call.own_params});')
    out.append('\n}  // namespace ddpsock::shim\n\n#endif  // DDPSOCK_SHIM_CALLS_H_')
    return '\n'.join(out) + '\n'


def write_real_h(calls):
    out = [BANNER, '''#ifndef DDPSOCK_SHIM_REAL_CALLS_H_
#define DDPSOCK_SHIM_REAL_CALLS_H_

#include "shim/libc_types.h"

namespace ddpsock::shim {

struct RealCalls {''']
    calls = real_calls(calls)
    for call in calls:
        out.append(f'  {call.result} (*{call.member})({call.real_types});')
    out.append('};')
    out.append(f'inline constexpr unsigned kRealCalls = {len(calls)};')
    out.append('static_assert(sizeof(RealCalls) == kRealCalls * sizeof(void (*)()));\n')
    for call in calls:
        if call.options.get('boot') == 'hand':
            out.append(f'{call.result} boot_{call.member}({call.param_list});')
    out.append('\n}  // namespace ddpsock::shim\n\n#endif  // DDPSOCK_SHIM_REAL_CALLS_H_')
    return '\n'.join(out) + '\n'


def write_boot(calls):
    calls = real_calls(calls)
    out = [BANNER, '''#include <stdarg.h>
#include <unistd.h>

#include "base/kernel_call.h"
#include "shim/real.h"

namespace ddpsock::shim {
namespace {

constexpr unsigned long kKernelSigsetSize = 8;
''']
    for call in calls:
        boot = call.options.get('boot', call.arg_list)
        if boot == 'hand':
            continue
        if boot == 'resolve':
            out += [f'{call.result} boot_{call.member}({call.param_list}) {{', '  resolve_real_calls();',
                    f'  return real.{call.member}({call.arg_list});', '}\n']
            continue
        found = re.match(r'^(\w+)\((.*)\)$', boot)
        number, args = (found[1], found[2]) if found else (call.name, boot)
        fixed = int(call.options.get('variadic', len(call.params)))
        params = ', '.join(('' if re.search(rf'\b{p.name}\b', args) else '[[maybe_unused]] ') + str(p)
                           for p in call.params[:fixed])
        if fixed < len(call.params):
            params += ', ...'
        out.append(f'{call.result} boot_{call.member}({params}) {{')
        if fixed < len(call.params):
            last = call.params[fixed]
            out += ['  va_list rest;', f'  va_start(rest, {call.params[fixed - 1].name});',
                    f'  {last.type} {last.name} = va_arg(rest, {last.type});', '  va_end(rest);']
        invoke = f'base::kernel_call(SYS_{number}, {args})'
        out.append(f'  {invoke};' if call.result == 'void'
                   else f'  return static_cast<{call.result}>({invoke});')
        out.append('}\n')
    out.append('}  // namespace\n')
    out.append('constinit RealCalls real = {')
    out += [f'    .{c.member} = boot_{c.member},' for c in calls]
    out.append('};\n')
    out.append('extern const char* const kRealNames[kRealCalls];')
    out.append('constinit const char* const kRealNames[kRealCalls] = {')
    out += [f'    "{c.name}",' for c in calls]
    out.append('};\n\n}  // namespace ddpsock::shim')
    return '\n'.join(out) + '\n'


def write_names(calls):
    return ''.join(n + '\n' for n in sorted(n for c in calls for n in c.names))


def write_map(calls):
    """Without a version: programs ask for libc's versions, which only an unversioned name answers."""
    names = ''.join(f'    {n};\n' for n in write_names(calls).split())
    return '/* Generated from shim/calls.list. */\n{\n  global:\n' + names + '    ddp_*;\n    __asan_default_options;\n  local: *;\n};\n'


def main(arguments):
    source, target = pathlib.Path(arguments[1]), pathlib.Path(arguments[2])
    try:
        calls = parse(source.read_text(encoding='utf-8'))
        outputs = {
            'calls.h': write_calls_h(calls), 'real_calls.h': write_real_h(calls),
            'boot_calls.cpp': write_boot(calls), 'wrappers.cpp': write_wrappers(calls),
            'exports.map': write_map(calls), 'calls.txt': write_names(calls),
        }
    except ListError as error:
        sys.exit(str(error))
    for name, text in outputs.items():
        (target / name).write_text(text, encoding='utf-8')


if __name__ == '__main__':
    main(sys.argv)
