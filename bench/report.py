#!/usr/bin/env python3
"""Writes the tables and plots of records.

    bench/report.py                    all committed records -> bench/results/README.md,
                                       and the tables of docs/performance.md
    bench/report.py --out DIR FILE...  these records -> DIR/README.md

A record is what `bench/compare` merged: the figures of the library and of its peers, measured on
one GPU with the same layouts, with GPU, driver, CUDA version, commit and command.
"""

import argparse
import collections
import pathlib

import page
import plot
from records import (
    DENSE,
    OURS,
    best_and_peer,
    crossover,
    load,
    over_random,
    problems_of,
    sweep_of,
    table,
    type_of,
)

RESULTS = pathlib.Path(__file__).resolve().parent / "results"
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
    "plain": "Operations that move bytes, on matrices [rows, columns]; the floor is the time of a "
    "copy far beyond the caches that moves as many.",
    "lstm": "Whole sequences; \"a step\" is us a step and layer, of all directions.",
}

SIZES = (
    "Matrices [rows, columns]; in brackets the time of the best peer over ours, and the floor's."
)


# ---- tables --------------------------------------------------------------------------------------


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


def sizes_tables(groups):
    """A row an operation, a column a shape: those of ever more bytes, then those of longer rows."""
    lines = []
    for title, chosen in (
        ("From few bytes to many", lambda cell: cell["columns"] == 1024 or cell["rows"] == 1),
        ("From short rows to long ones", lambda cell: cell["columns"] != 1024 and cell["rows"] > 1),
    ):
        rows = collections.OrderedDict()
        for group in groups:
            if chosen(group.cell):
                shape = f"{group.cell['rows']} x {group.cell['columns']}"
                rows.setdefault(group.what, {})[shape] = beside_best(group)
        shapes = list(dict.fromkeys(shape for of_row in rows.values() for shape in of_row))
        body = [[what, *(of_row.get(shape, "") for shape in shapes)] for what, of_row in rows.items()]
        if body:
            lines += [f"### {title}", "", *table(["us", *shapes], body)]
    return lines


def beside_best(group):
    """Our time; in brackets that of the best peer over it, and of the floor."""
    ours = group.ours()
    best = group.best(group.peers())
    ratio = f"{best[0] / ours['seconds']:.2f}, " if best else ""
    floor = ours["floor_seconds"] / ours["seconds"]
    return f"{1e6 * ours['seconds']:.4g} ({ratio}{floor:.2f})"


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


def against_random(groups):
    """Our rates on structured layouts over those on random ones of the same density."""
    products = list(dict.fromkeys(group.what for group in groups))
    body = [
        [pattern, str(block), f"{density:.3g}",
         *(f"{of_row[what]:.2f}" if what in of_row else "" for what in products)]
        for (pattern, block, density), of_row in over_random(groups).items()
    ]  # fmt: skip
    return table(["pattern", "block", "density", *products], body) if body else []


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
    (folder / "plots").mkdir(parents=True, exist_ok=True)
    (folder / "plots" / name).write_text(svg)
    lines += [f"![{title}](plots/{name})", ""]


def section(record, folder, stem):
    """The section of a record; it and its plots are named after the record's file."""
    name = record["benchmark"]
    machine = ", ".join(f"{key} {value}" for key, value in record["machine"].items())
    lines = [f"## {stem}", "", f"{name}, {type_of(record)}. {machine}.", ""]
    if note := record.get("note"):
        lines += [note, ""]
    if ceilings := record.get("ceilings"):
        lines += [f"Ceilings of the same run: dense {1e-12 * ceilings['flops_per_second']:.4g} TF, "
                  f"copy {1e-12 * ceilings['bytes_per_second']:.3g} TB/s.", ""]  # fmt: skip
    if note := NOTES.get(name.split()[0]):
        lines += [note, ""]
    if name.startswith("gemm"):
        lines += dense_tables(record)
    elif all(group.cell.get("set") == "sizes" for group in record["groups"]):
        lines += [SIZES, "", *sizes_tables(record["groups"])]
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
# Records

Generated by `bench/report.py` from the records in this folder; do not edit.

- `bench/compare` makes a record. It runs the library and its peers on one GPU, on the same
  problems, in the same minutes.
- A figure is the median of at least 20 runs, unless its command says otherwise. Events time each
  run, the L2 cache is washed before it, and inputs are random.
- Results are compared with sums in double before they are timed. Works that are compared take turns.
- Where a command says `--merge`, a figure is the fastest of several rounds, ours and the peers' alike.
- "Of the floor" is the time that the run's own ceilings allow, over the time measured.
- "Plan us" is what the first product on a new layout costs besides.
"""


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=pathlib.Path, default=RESULTS)
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()
    files = arguments.files or sorted(RESULTS.glob("*.json"))
    if not files:
        parser.error("no records: bench/results is empty")
    records = {path.stem: load(path) for path in files}
    lines = INTRODUCTION.split("\n")
    for stem, record in records.items():
        lines += section(record, arguments.out, stem)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "README.md").write_text("\n".join(lines).rstrip("\n") + "\n")
    if not arguments.files:
        page.renew(records)


if __name__ == "__main__":
    main()
