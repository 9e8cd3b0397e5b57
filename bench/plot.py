"""Small line charts as SVG, for bench/report.py. Nothing but the standard library."""

import math
from xml.sax.saxutils import escape

COLOURS = ["#0b6e4f", "#c1292e", "#235789", "#f1a208", "#7d5ba6", "#6b705c"]
WIDTH, HEIGHT = 300, 230  # of one panel
LEFT, RIGHT, TOP, BOTTOM = 48, 12, 28, 34


class Series:
    """Points (x, y) under a name; the same name has the same colour in all panels of a figure."""

    def __init__(self, name, points, dashed=False):
        self.name, self.points, self.dashed = name, sorted(points), dashed


class Panel:
    def __init__(self, title, series, x_label, y_label, marks=()):
        """marks: (x, y, text) put beside a point."""
        self.title, self.series = title, series
        self.x_label, self.y_label = x_label, y_label
        self.marks = marks


def ticks(low, high, wanted=5):
    """Round numbers from low to high."""
    step = 10 ** math.floor(math.log10((high - low) / wanted))
    step *= next(m for m in (1, 2, 5, 10) if (high - low) / (step * m) <= wanted)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def number(value):
    return f"{value:.6g}"


def draw_panel(panel, colours, left, top, x_range, y_range):
    x0, x1 = left + LEFT, left + WIDTH - RIGHT
    y0, y1 = top + HEIGHT - BOTTOM, top + TOP

    def x_at(x):
        return x0 + (x - x_range[0]) / (x_range[1] - x_range[0]) * (x1 - x0)

    def y_at(y):
        return y0 + (y - y_range[0]) / (y_range[1] - y_range[0]) * (y1 - y0)

    def text(x, y, content, more=""):
        return f"<text x='{x:.1f}' y='{y:.1f}' {more}>{escape(content)}</text>"

    parts = [text((x0 + x1) / 2, top + 16, panel.title, "text-anchor='middle' font-weight='bold'")]
    for y in ticks(*y_range):
        parts.append(f"<path d='M{x0} {y_at(y):.1f}H{x1}' stroke='#ddd'/>")
        parts.append(text(x0 - 4, y_at(y) + 4, number(y), "text-anchor='end'"))
    for x in ticks(*x_range):
        parts.append(f"<path d='M{x_at(x):.1f} {y0}v3' stroke='#888'/>")
        parts.append(text(x_at(x), y0 + 14, number(x), "text-anchor='middle'"))
    parts.append(f"<path d='M{x0} {y1}V{y0}H{x1}' fill='none' stroke='#888'/>")
    parts.append(text((x0 + x1) / 2, y0 + 28, panel.x_label, "text-anchor='middle'"))
    parts.append(text(left + 4, top + 16, panel.y_label))
    for series in panel.series:
        if not series.points:
            continue
        colour = colours[series.name]
        path = "L".join(f"{x_at(x):.1f} {y_at(min(y, y_range[1])):.1f}" for x, y in series.points)
        dash = " stroke-dasharray='4 3'" if series.dashed else ""
        parts.append(f"<path d='M{path}' fill='none' stroke='{colour}' stroke-width='1.8'{dash}/>")
        for x, y in series.points:
            if y <= y_range[1]:
                parts.append(
                    f"<circle cx='{x_at(x):.1f}' cy='{y_at(y):.1f}' r='2' fill='{colour}'/>"
                )
    for x, y, label in panel.marks:
        parts.append(
            f"<circle cx='{x_at(x):.1f}' cy='{y_at(y):.1f}' r='4' fill='none' stroke='#000'/>"
        )
        parts.append(text(x_at(x) + 6, y_at(y) - 5, label))
    return parts


def figure(panels, columns, y_top=None):
    """All panels in rows of `columns`, with one scale for all and one legend below."""
    points = [p for panel in panels for series in panel.series for p in series.points]
    if not points:
        return ""
    x_range = (0, max(x for x, _ in points))
    y_range = (0, y_top or 1.05 * max(y for _, y in points))
    names = list(dict.fromkeys(series.name for panel in panels for series in panel.series))
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}
    rows = -(-len(panels) // columns)
    width, height = columns * WIDTH, rows * HEIGHT + 24
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' "
        f"viewBox='0 0 {width} {height}' font-family='sans-serif' font-size='11'>",
        f"<rect width='{width}' height='{height}' fill='white'/>",
    ]
    for i, panel in enumerate(panels):
        left, top = i % columns * WIDTH, i // columns * HEIGHT
        parts += draw_panel(panel, colours, left, top, x_range, y_range)
    x = LEFT
    for name in names:
        y = rows * HEIGHT + 12
        parts.append(f"<rect x='{x}' y='{y - 4}' width='14' height='4' fill='{colours[name]}'/>")
        parts.append(f"<text x='{x + 18}' y='{y + 2}'>{escape(name)}</text>")
        x += 40 + 7 * len(name)
    parts.append("</svg>\n")
    return "\n".join(parts)
