#!/usr/bin/env python3
"""Writes docs/performance.md and its plots from the records in bench/results.

    bench/report.py                    all committed records -> docs/performance.md
    bench/report.py --out DIR FILE...  tables and plots of these records -> DIR

A record is what `bench/compare` merged: the figures of the library and of its peers, measured on
one GPU with the same layouts, with GPU, driver, CUDA version, commit and command.
"""

import argparse
import collections
import json
import pathlib
import statistics

import plot

ROOT = pathlib.Path(__file__).resolve().parent.parent
OURS = "bs"
# Products as they are with the zeros left in: no peers, but what decides whether sparsity pays.
DENSE = ("dense", "torch dense")
SETS = {
    "transposes": "Every transposition",
    "sweep": "From nearly empty to dense",
    "patterns": "Structured layouts, and rows of unequal length",
    "reference": "Sizes of models",
}
NOTES = {
    "gemm": "Kernels of `GemmOperation` beside cuBLASLt. `n` and `t` tell whether A and B are "
    "row-major or transposes of such; the error is that of sampled entries, over the root of the "
    "sum of squares of their terms.",
    "block_sparse_matmul": "TF of useful work, 2 nnz block² n FLOP; in brackets how many times "
    "the rate of the best peer. `n` and `t` tell which operands are transposed.",
    "lstm": "Whole sequences; \"a step\" is us a step and layer, of all directions.",
}


class Group:
    """The figures of one (cell, what)."""

    def __init__(self, cell, what):
        self.cell, self.what = cell, what
        self.by = {}

    def seconds(self, name):
        figure = self.by.get(name)
        return figure["seconds"] if figure else None

    def best(self, names):
        """(seconds, name) of the fastest among names, or None."""
        known = [(self.seconds(name), name) for name in names if self.seconds(name)]
        return min(known, default=None)

    def peers(self):
        return [name for name in self.by if name != OURS and name not in DENSE]

    def ours(self):
        return self.by[OURS]


def type_of(record):
    return record["dtype"] + (" as TF32" if "--tf32 1" in record["command"] else "")


def load(path):
    with open(path) as file:
        record = json.load(file)
    groups = {}
    for figure in record["figures"]:
        if "error" in figure:
            continue
        key = json.dumps([figure["cell"], figure["what"]], sort_keys=True)
        groups.setdefault(key, Group(figure["cell"], figure["what"]))
        groups[key].by[figure["by"]] = figure
    record["groups"] = [group for group in groups.values() if OURS in group.by]
    return record


# ---- tables --------------------------------------------------------------------------------------


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return lines + [""]


def rate_text(group):
    ours = group.ours()
    text = f"{1e-12 * ours['flops'] / ours['seconds']:.3g}"
    peer = group.best(group.peers())
    return text + (f" ({peer[0] / ours['seconds']:.2f})" if peer else "")


def peer_text(group):
    best = group.best(group.peers())
    if not best:
        return ""
    return f"{1e-12 * group.ours()['flops'] / best[0]:.3g} {best[1]}"


def unit_text(figure):
    parts = []
    if figure["flops"]:
        parts.append(f"{1e-12 * figure['flops'] / figure['seconds']:.3g} TF")
    if figure["bytes"]:
        parts.append(f"{1e-12 * figure['bytes'] / figure['seconds']:.3g} TB/s")
    return ", ".join(parts)


def generic_table(groups):
    """A row a figure of ours: every member of its cell, the time, each peer's time and ratio."""
    members = list(dict.fromkeys(name for group in groups for name in group.cell))
    peers = list(dict.fromkeys(name for group in groups for name in group.by if name != OURS))
    steps = any("us_per_step" in group.ours() for group in groups)
    header = [*members, "what", "us", "quartiles", *(["a step"] if steps else []), "rate"]
    header.append("of the floor")
    header += [f"{peer} us (ratio)" for peer in peers]
    rows = []
    for group in groups:
        ours = group.ours()
        row = [str(group.cell.get(name, "")) for name in members]
        row += [group.what, f"{1e6 * ours['seconds']:.4g}"]
        row.append(f"{1e6 * ours['low']:.4g} to {1e6 * ours['high']:.4g}")
        if steps:
            row.append(f"{ours['us_per_step']:.3g}")
        row.append(unit_text(ours))
        floor = ours.get("floor_seconds")
        row.append(f"{floor / ours['seconds']:.2f}" if floor else "")
        for peer in peers:
            theirs = group.seconds(peer)
            row.append(f"{1e6 * theirs:.4g} ({theirs / ours['seconds']:.2f})" if theirs else "")
        rows.append(row)
    return table(header, rows)


def matmul_table(groups):
    """A row a layout, a column a product: TF, and the ratio to the best peer."""
    products = list(dict.fromkeys(group.what for group in groups))
    rows = collections.OrderedDict()
    for group in groups:
        cell = group.cell
        key = (cell["pattern"], str(cell["block"]), f"{cell['density']:.3g}",
               f"{cell['rows']} x {cell['cols']}")  # fmt: skip
        rows.setdefault(key, {})[group.what] = group
    body = []
    for key, of_row in rows.items():
        dense = [group.best(DENSE) for group in of_row.values() if group.best(DENSE)]
        plans = [g.ours()["plan_seconds"] for g in of_row.values() if "plan_seconds" in g.ours()]
        widths = {group.cell["width"] for group in of_row.values()}
        body.append(
            [*key, ", ".join(str(width) for width in sorted(widths))]
            + [rate_text(of_row[what]) if what in of_row else "" for what in products]
            + [f"{1e6 * min(dense)[0]:.4g}" if dense else "", f"{1e6 * max(plans):.0f}" if plans else ""]
        )
    header = ["pattern", "block", "density", "sparse matrix", "width", *products]
    lines = table([*header, "dense us", "plan us"], body)
    if any(group.peers() for group in groups):
        body = [
            [*key[:3], *(peer_text(of_row[what]) if what in of_row else "" for what in products)]
            for key, of_row in rows.items()
        ]
        lines += ["The best peers:", "", *table([*header[:3], *products], body)]
    return lines


def rate(group):
    return group.ours()["flops"] / group.ours()["seconds"]


def interpolated(points, x):
    """The value at x of a line through points (x, y), level beyond its ends."""
    points = sorted(points)
    if x <= points[0][0]:
        return points[0][1]
    for (x0, y0), (x1, y1) in zip(points, points[1:]):
        if x <= x1:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0) if x1 > x0 else y1
    return points[-1][1]


def against_random(groups):
    """Our rates on structured layouts over those on random ones of the same density."""
    random = collections.defaultdict(list)
    rows = collections.OrderedDict()
    for group in groups:
        cell = group.cell
        if cell["pattern"] == "random":
            random[cell["block"], group.what].append((cell["density"], rate(group)))
        else:
            key = (cell["pattern"], cell["block"], cell["density"])
            rows.setdefault(key, {})[group.what] = group
    products = list(dict.fromkeys(group.what for group in groups))
    body = []
    for (pattern, block, density), of_row in rows.items():
        row = [pattern, str(block), f"{density:.3g}"]
        for what in products:
            known = what in of_row and random[block, what]
            alike = known and interpolated(random[block, what], density)
            row.append(f"{rate(of_row[what]) / alike:.2f}" if alike else "")
        body.append(row)
    return table(["pattern", "block", "density", *products], body) if body else []


def problems_of(record):
    """The figures of a record of dense products, by (shape, layouts)."""
    problems = collections.OrderedDict()
    for figure in record["figures"]:
        cell = figure["cell"]
        problems.setdefault((cell["shape"], cell["layouts"]), []).append(figure)
    return problems


def best_and_peer(figures):
    """The fastest of the peers, and of our kernels that are as exact: one that rounds its operands
    to fewer bits does other work."""
    peer = min((f for f in figures if f["by"] != OURS), key=lambda f: f["seconds"])
    exact = [f for f in figures
             if f["by"] == OURS and f["relative_error"] <= 2 * peer["relative_error"]]  # fmt: skip
    return min(exact, key=lambda f: f["seconds"]), peer


# ---- summary -------------------------------------------------------------------------------------


def ratios(record):
    """[(time of the best peer over ours, that peer)] of all that a record compares."""
    if record["benchmark"].startswith("gemm"):
        pairs = [
            (ours["seconds"], (peer["seconds"], peer["by"]))
            for ours, peer in map(best_and_peer, problems_of(record).values())
        ]
    else:
        pairs = [(group.seconds(OURS), group.best(group.peers())) for group in record["groups"]]
    return [(best[0] / ours, best[1]) for ours, best in pairs if best]


def summary(records):
    """A row a record that knows peers: how many times as long as ours the best of them take."""
    rows = []
    for record in records:
        known = ratios(record)
        if not known:
            continue
        values = sorted(value for value, _ in known)
        rows.append(
            [f"{record['benchmark']}, {type_of(record)}", record["machine"].get("gpu", "CPU"),
             str(len(values)), str(sum(value < 1 for value in values)),
             *(f"{value:.2f}" for value in (values[0], statistics.median(values), values[-1])),
             ", ".join(sorted({peer for _, peer in known}))]
        )  # fmt: skip
    header = ["record", "on", "problems", "in which we lose", "least", "median", "most", "peers"]
    return ["## Beside the best peer", "", "Time of the best peer over ours, problem by problem.", "",
            *table(header, rows)] if rows else []  # fmt: skip


# ---- dense products ------------------------------------------------------------------------------


def dense_tables(record):
    """A row a problem with the best of our kernels beside the peer's, then the rates of them all."""
    problems = problems_of(record)
    best_rows, kernels = [], {}
    for (shape, layouts), figures in problems.items():
        best, peer = best_and_peer(figures)
        best_rows.append(
            [shape, layouts, best["what"], f"{1e6 * best['seconds']:.4g}",
             f"{1e6 * best['low']:.4g} to {1e6 * best['high']:.4g}",
             f"{1e-12 * best['flops'] / best['seconds']:.4g}", f"{best['relative_error']:.2g}",
             f"{1e6 * peer['seconds']:.4g}", f"{1e-12 * peer['flops'] / peer['seconds']:.4g}",
             f"{peer['relative_error']:.2g}", f"{peer['seconds'] / best['seconds']:.2f}"]
        )  # fmt: skip
        for figure in figures:
            rate = f"{1e-12 * figure['flops'] / figure['seconds']:.3g}"
            kernels.setdefault(figure["what"], {})[shape, layouts] = rate
    header = ["m x n x k", "layouts", "our best", "us", "quartiles", "TF", "error"]
    header += ["cuBLASLt us", "TF", "error", "ratio"]
    lines = ["The best of our kernels for each problem, of those as exact as the peer:", "", *table(header, best_rows)]
    header = ["TF of", *(f"{shape} {layouts}" for shape, layouts in problems)]
    rows = [[name, *(rates.get(problem, "") for problem in problems)]
            for name, rates in kernels.items()]  # fmt: skip
    return [*lines, "All of them:", "", *table(header, rows)]


# ---- block-sparse products: plots ----------------------------------------------------------------


def sweep_of(record):
    """{(op, block): [groups by density]} of the set `sweep`."""
    sweep = collections.defaultdict(list)
    for group in record["groups"]:
        if group.cell.get("set") == "sweep":
            sweep[group.what, group.cell["block"]].append(group)
    for groups in sweep.values():
        groups.sort(key=lambda group: group.cell["density"])
    products = list(dict.fromkeys(what for what, _ in sweep))
    return dict(sorted(sweep.items(), key=lambda item: (products.index(item[0][0]), item[0][1])))


def rates_plot(sweep):
    panels = []
    for (what, block), groups in sweep.items():

        def rates(choose):
            points = [(group.cell["density"], choose(group), group) for group in groups]
            return [
                (x, 1e-12 * group.ours()["flops"] / best[0]) for x, best, group in points if best
            ]

        series = [
            plot.Series("bs", rates(lambda group: group.best([OURS]))),
            plot.Series("best peer", rates(lambda group: group.best(group.peers()))),
            plot.Series("dense", rates(lambda group: group.best(DENSE)), dashed=True),
        ]
        panels.append(plot.Panel(f"{what}, block {block}", series, "density", "TF"))
    return plot.figure(panels, columns=len({block for _, block in sweep}))


def crossover(groups):
    """The density up to which we beat the dense product, between two measured ones; None where we
    always or never do."""
    points = [
        (group.cell["density"], group.best(DENSE), group.ours()["seconds"]) for group in groups
    ]
    points = [(x, ours / dense[0]) for x, dense, ours in points if dense]
    for (x0, y0), (x1, y1) in zip(points, points[1:]):
        if y0 < 1 <= y1:
            return x0 + (1 - y0) * (x1 - x0) / (y1 - y0)
    return None


def crossover_plot(sweep):
    panels = []
    for wanted in dict.fromkeys(what for what, _ in sweep):
        series, marks = [], []
        for (what, block), groups in sweep.items():
            if what != wanted:
                continue
            points = [(g.cell["density"], g.ours()["seconds"] / g.best(DENSE)[0])
                      for g in groups if g.best(DENSE)]  # fmt: skip
            series.append(plot.Series(f"block {block}", points))
            if at := crossover(groups):
                marks.append((at, 1, f"{at:.2f}"))
        panels.append(plot.Panel(wanted, series, "density", "time / dense", marks))
    return plot.figure(panels, columns=len(panels), y_top=2)


def crossover_table(sweep):
    """The sparsity from which we win."""
    blocks = list(dict.fromkeys(block for _, block in sweep))
    rows = []
    for wanted in dict.fromkeys(what for what, _ in sweep):
        row = [wanted]
        for block in blocks:
            groups = sweep.get((wanted, block), [])
            at = crossover(groups)
            known = [group for group in groups if group.best(DENSE)]
            always = known and known[-1].ours()["seconds"] < known[-1].best(DENSE)[0]
            row.append(f"{100 * (1 - at):.0f} %" if at else "always" if always else "never")
        rows.append(row)
    return table(["sparsity from which we win", *(f"block {block}" for block in blocks)], rows)


# ---- documents -----------------------------------------------------------------------------------


def write_plot(lines, folder, name, title, svg):
    if not svg:
        return
    (folder / "performance").mkdir(parents=True, exist_ok=True)
    (folder / "performance" / name).write_text(svg)
    lines += [f"![{title}](performance/{name})", ""]


def section(record, folder, stem):
    """The section of a record; its plots are named after its file's stem."""
    name = record["benchmark"]
    machine = ", ".join(f"{key} {value}" for key, value in record["machine"].items())
    lines = [f"## {name}, {type_of(record)}", "", machine + ".", ""]
    if note := record.get("note"):
        lines += [note, ""]
    if ceilings := record.get("ceilings"):
        lines += [f"Ceilings of the same run: dense {1e-12 * ceilings['flops_per_second']:.4g} TF, "
                  f"copy {1e-12 * ceilings['bytes_per_second']:.3g} TB/s.", ""]  # fmt: skip
    if note := NOTES.get(name.split()[0]):
        lines += [note, ""]
    if name.startswith("gemm"):
        lines += dense_tables(record)
    elif name != "block_sparse_matmul":
        lines += generic_table(record["groups"])
    else:
        for chosen, title in SETS.items():
            groups = [group for group in record["groups"] if group.cell["set"] == chosen]
            if groups:
                lines += [f"### {title}", "", *matmul_table(groups)]
            if chosen == "patterns" and (rows := against_random(groups)):
                lines += ["Our rates over those on random layouts of the same density:", "", *rows]
        if sweep := sweep_of(record):
            lines += crossover_table(sweep)
            rates, crossing = rates_plot(sweep), crossover_plot(sweep)
            write_plot(lines, folder, f"{stem}-rates.svg", "TF against density", rates)
            write_plot(lines, folder, f"{stem}-crossover.svg", "crossover", crossing)
    lines += [f"Command: `{record['command']}`", ""]
    return lines


INTRODUCTION = """\
# Performance

Generated by `bench/report.py` from the records in `bench/results`; do not edit. `bench/compare`
makes a record: the library and its peers on one GPU, on the same problems, in the same minutes.
Medians of at least 20 runs on random inputs, timed by events, the L2 cache washed before each;
results are compared with sums in double before they are timed; works that are compared take turns.
"Of the floor" is the time that the run's own ceilings allow, of FLOPs or of bytes, over the time
measured. "Plan" is what the first product on a new layout costs besides.
"""


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs")
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()
    files = arguments.files or sorted((ROOT / "bench" / "results").glob("*.json"))
    if not files:
        parser.error("no records: bench/results is empty")
    records = [load(path) for path in files]
    lines = INTRODUCTION.split("\n") + summary(records)
    for path, record in zip(files, records):
        lines += section(record, arguments.out, path.stem)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "performance.md").write_text("\n".join(lines).rstrip("\n") + "\n")


if __name__ == "__main__":
    main()
