# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Draws figures as SVG, with classes instead of colours: the page's style sheet knows light, dark and print."""

import dataclasses
import math
from html import escape

from figure import number, size_name, tick

# As wide as a phone, so that the letters keep their size there.
WIDTH = 400
LINES_HEIGHT = 290
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 22, 42
LANE, GROUP_HEAD, GROUP_GAP = 17, 18, 8
LABEL_ROOM = 112  # behind a bar, for its number
LOG_FROM = 12  # a range so many times its start is drawn on a log axis


@dataclasses.dataclass(frozen=True)
class Style:
    """A class of the style sheet, and the shape of its dots, so that lines can be told apart without colours."""
    name: str
    shape: str  # circle, square, triangle or diamond


class Axis:
    """Maps values to one direction of the picture and chooses where its ticks stand."""

    def __init__(self, values, start, end, is_log, name=tick, from_zero=False):
        low, high = min(values), max(values)
        self.is_log, self.start, self.end, self.name = is_log, start, end, name
        if not is_log and from_zero:
            low, high = 0, high * 1.05
        if low == high:
            low, high = (low / 2, high * 2) if is_log else (low - 1, high + 1)
        self.low, self.high = low, high

    def at(self, value):
        if self.is_log:
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)

    def ticks(self):
        return [t for t in (self._log_ticks() if self.is_log else self._linear_ticks()) if self.low <= t <= self.high]

    def _log_ticks(self):
        if self.name is size_name:
            powers = range(math.ceil(math.log2(self.low)), math.floor(math.log2(self.high)) + 1)
            step = max(1, math.ceil(len(powers) / 7))
            return [2.0 ** p for p in powers if p % step == 0]
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        parts = (1,) if len(decades) > 4 else (1, 2, 5)
        return [m * 10.0 ** d for d in decades for m in parts]

    def _linear_ticks(self):
        raw = (self.high - self.low) / 5
        unit = 10 ** math.floor(math.log10(raw))
        step = next(m * unit for m in (1, 2, 5, 10) if m * unit >= raw)
        first = math.ceil(self.low / step)
        return [i * step for i in range(first, math.floor(self.high / step) + 1)]


def lines(series, published, y_name, x_name, is_x_bytes, is_x_log, better):
    """`series`: (Style, name, [(x, low, median, high)]); `published`: (Style, Published)."""
    xs = [p[0] for _, _, points in series for p in points]
    ys = [v for _, _, points in series for p in points for v in p[1:]]
    for _, paper in published:
        ys += [y for _, y in paper.points]
        if not paper.is_level:
            xs += [x for x, _ in paper.points]
    is_y_log = min(ys) > 0 and max(ys) / min(ys) > LOG_FROM
    x_axis = Axis(xs, LEFT, WIDTH - RIGHT, is_x_log, size_name if is_x_bytes else tick)
    spread = [min(ys) / 1.1, max(ys) * 1.1] if is_y_log else ys
    y_axis = Axis(spread, LINES_HEIGHT - BOTTOM, TOP, is_y_log, from_zero=True)
    parts = [_frame(x_axis, y_axis, x_name, f"{y_name} ({better} is better)")]
    for style, paper in published:
        parts.append(_published(style, paper, x_axis, y_axis))
    for style, name, points in series:
        parts.append(_series(style, name, points, x_axis, y_axis, y_name))
    return _picture(LINES_HEIGHT, parts)


def _frame(x_axis, y_axis, x_name, y_name):
    bottom = LINES_HEIGHT - BOTTOM
    parts = [f'<text x="2" y="13" class="axis">{escape(y_name)}</text>',
             f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{LINES_HEIGHT - 6}" class="axis middle">{escape(x_name)}</text>']
    for value in y_axis.ticks():
        y = y_axis.at(value)
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'
                     f'<text x="{LEFT - 5}" y="{y + 4:.1f}" class="end">{y_axis.name(value)}</text>')
    for value in x_axis.ticks():
        x = x_axis.at(value)
        parts.append(f'<path class="tick" d="M{x:.1f} {bottom}v4"/>'
                     f'<text x="{x:.1f}" y="{bottom + 17}" class="middle">{x_axis.name(value)}</text>')
    parts.append(f'<path class="base" d="M{LEFT} {bottom}H{WIDTH - RIGHT}"/>')
    return "".join(parts)


def _series(style, name, points, x_axis, y_axis, unit):
    at = [(x_axis.at(x), y_axis.at(low), y_axis.at(mid), y_axis.at(high)) for x, low, mid, high in points]
    band = " ".join([f"{x:.1f},{low:.1f}" for x, low, _, _ in at] + [f"{x:.1f},{high:.1f}" for x, _, _, high in at[::-1]])
    line = "M" + "L".join(f"{x:.1f} {mid:.1f}" for x, _, mid, _ in at)
    parts = [f'<g class="{style.name}"><polygon class="band" points="{band}"/><path class="line" d="{line}"/>']
    for (x, _, mid, _), (value, low, median, high) in zip(at, points):
        tip = f"{name}, {x_axis.name(value)}: {number(median)} {unit} (quartiles {number(low)} to {number(high)})"
        parts.append(f'<g class="dot"><title>{escape(tip)}</title>{mark(style.shape, x, mid)}</g>')
    return "".join(parts) + "</g>"


def _published(style, paper, x_axis, y_axis):
    if paper.is_level:
        y = y_axis.at(paper.points[0][1])
        return f'<g class="{style.name}"><path class="line level" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/></g>'
    dots = "".join(f'<g class="dot"><title>{escape(paper.name)}: {number(y)}</title>{mark(style.shape, x_axis.at(x), y_axis.at(y))}</g>'
                   for x, y in paper.points)
    return f'<g class="{style.name}">{dots}</g>'


def mark(shape, x, y, size=3.4):
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}"/>'
    s = size * 1.15
    corners = {"square": ((-s, -s), (s, -s), (s, s), (-s, s)), "triangle": ((0, -s * 1.2), (s * 1.15, s), (-s * 1.15, s)),
               "diamond": ((0, -s * 1.35), (s * 1.35, 0), (0, s * 1.35), (-s * 1.35, 0))}[shape]
    return '<polygon points="{}"/>'.format(" ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners))


def bars(groups, baseline):
    """`groups`: (label, [(Style, name, times, text)]); a bar goes from 1, the baseline, to how many times as fast."""
    times = [t for _, lanes in groups for _, _, t, _ in lanes] + [1]
    low, high = min(times), max(times)
    axis = Axis([min(low, 0.8) / 1.02, max(high, 1.25) * 1.02], 10, WIDTH - LABEL_ROOM, is_log=True)
    height = TOP + sum(GROUP_HEAD + LANE * len(lanes) + GROUP_GAP for _, lanes in groups) + 4
    one = axis.at(1)
    parts = [f'<text x="2" y="13" class="axis">times as good as {escape(baseline)}; further right is better</text>']
    y = TOP
    rows = []
    for label, lanes in groups:
        rows.append(f'<text x="2" y="{y + 14}" class="group">{escape(label)}</text>')
        y += GROUP_HEAD
        for style, name, factor, text in lanes:
            x = axis.at(factor)
            left, width = min(one, x), max(abs(x - one), 1.5)
            rows.append(f'<g class="{style.name}"><title>{escape(name)}: {escape(text)}</title>'
                        f'<rect class="bar" x="{left:.1f}" y="{y + 3}" width="{width:.1f}" height="{LANE - 6}" rx="1.5"/></g>'
                        f'<text x="{max(one, x) + 5:.1f}" y="{y + 13}" class="value">{escape(text)}</text>')
            y += LANE
        y += GROUP_GAP
    parts.append(f'<path class="base" d="M{one:.1f} {TOP}V{height - 6}"/>')
    return _picture(height, parts + rows)


def _picture(height, parts):
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img">{"".join(parts)}</svg>'
