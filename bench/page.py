"""Renews the tables of docs/performance.md from the records, for bench/report.py."""

import collections
import pathlib
import statistics

from records import (
    DENSE,
    crossover,
    over_random,
    rate,
    ratios,
    sweep_of,
    table,
    type_of,
)

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "performance.md"
BLOCK_SPARSE = "block_sparse_matmul-"
# Title of a row, its record, and the densities it is shown at.
RATES = [
    ("bf16, 8192³", "bf16-8192", (0.1, 0.25)),
    ("TF32, 4096³", "f32-tf32", (0.1, 0.3)),
    ("f32, 4096³", "f32", (0.1, 0.3)),
]
SWEEPS = [
    ("bf16, 8192³", "bf16-sweep-8192"),
    ("bf16, 4096³", "bf16-sweep-4096"),
    ("TF32, 4096³", "f32-tf32-sweep-4096"),
    ("f32, 4096³", "f32-sweep-4096"),
]


def span(values, form="{:.0f}"):
    """The least and the most of values, or one where both print alike."""
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"


def peers_table(records):
    """A row a family and type that knows peers: how many times as long as ours the best of them take."""
    families = {}
    for stem, record in records.items():
        gpu = record["machine"].get("gpu", "CPU").replace("NVIDIA ", "").split()[0]
        family, operands = stem.split("-")[:2]
        key = (family, operands if family == "gemm" else type_of(record), gpu)
        families.setdefault(key, []).extend(ratios(record))
    rows = []
    for (family, dtype, gpu), known in families.items():
        if not known:
            continue
        values = sorted(value for value, _ in known)
        rows.append(
            [family, dtype, gpu, str(len(values)), str(sum(value < 1 for value in values)),
             *(f"{value:.2f}" for value in (values[0], statistics.median(values), values[-1])),
             ", ".join(sorted({peer for _, peer in known}))]
        )  # fmt: skip
    header = ["family", "type", "on", "problems", "slower", "least", "median", "most", "peers"]
    return table(header, rows)


def rates_table(records):
    """A row a type and density, a column a block: our TF over all products, and the dense rate."""
    blocks, rows = (16, 32, 64, 128), []
    for title, stems, densities in RATES:
        groups = [g for stem in stems.split() for g in records[BLOCK_SPARSE + stem]["groups"]]
        for density in densities:
            chosen = [g for g in groups if abs(g.cell["density"] - density) < 0.005]
            of_block = {b: [1e-12 * rate(g) for g in chosen if g.cell["block"] == b] for b in blocks}
            dense = [1e-12 * g.ours()["flops"] / g.cell["density"] / g.best(DENSE)[0]
                     for g in chosen if g.best(DENSE)]  # fmt: skip
            rows.append(
                [title, f"{density:g}",
                 *(span(of_block[b]) if of_block[b] else "" for b in blocks),
                 f"{statistics.median(dense):.0f}" if dense else ""]
            )  # fmt: skip
    return table(["TF of useful work", "density", *(f"block {b}" for b in blocks), "dense"], rows)


def sparsity(groups):
    """The sparsity in percent from which we beat the dense product; None where we never do."""
    at = crossover(groups)
    last = groups[-1]
    if at is None and last.ours()["seconds"] >= last.best(DENSE)[0]:
        return None
    return 100 * (1 - (at or 1))


def crossover_table(records):
    blocks, rows = (8, 16, 32, 64, 128), []
    for title, stem in SWEEPS:
        sweep = sweep_of(records[BLOCK_SPARSE + stem])
        row = [title]
        for block in blocks:
            known = [sparsity(groups) for (_, of_block), groups in sweep.items() if of_block == block]
            some = [value for value in known if value is not None]
            row.append(span(some) + " %" + (", or never" if None in known else ""))
        rows.append(row)
    return table(["sparsity from which blocks pay", *(f"block {b}" for b in blocks)], rows)


def patterns_table(records):
    """The median over products and densities of our rates over those on random layouts."""
    values = collections.defaultdict(list)
    groups = records[BLOCK_SPARSE + "bf16-patterns-8192"]["groups"]
    for (pattern, block, _), of_row in over_random(groups).items():
        values[pattern, block] += of_row.values()
    blocks = sorted({block for _, block in values})
    rows = [[pattern, *(f"{statistics.median(values[pattern, b]):.2f}" if values[pattern, b] else ""
                        for b in blocks)]
            for pattern in dict.fromkeys(pattern for pattern, _ in list(values))]  # fmt: skip
    return table(["rate over random", *(f"block {b}" for b in blocks)], rows)


def lstm_table(records):
    """A row a size: us a step and layer, and the peer's time over ours, forward / backward."""
    rows = collections.OrderedDict()
    for dtype in ("bf16", "f16"):
        for group in records[f"lstm-{dtype}"]["groups"]:
            cell = group.cell
            size = f"{cell['steps']} x {cell['batch']} x {cell['hidden']} x {cell['layers']}"
            times = rows.setdefault(size, collections.OrderedDict())
            ours, theirs = group.ours(), group.best(group.peers())[0]
            times.setdefault(dtype, []).append(f"{ours['us_per_step']:.2g}")
            times.setdefault(dtype + " ratio", []).append(f"{theirs / ours['seconds']:.2f}")
    header = ["steps x batch x cells x layers", "bf16 us a step", "cuDNN over it", "f16 us a step",
              "cuDNN over it"]  # fmt: skip
    body = [[size, *(" / ".join(texts) for texts in of_size.values())] for size, of_size in rows.items()]
    return table(header, body)


def attention_table(records):
    """A row a pattern, a column a block: TF forward / backward, and a peer's time over ours where known."""
    rows, densities = collections.OrderedDict(), {}
    for group in records["sparse_attention-bf16"]["groups"]:
        pattern, block = group.cell["pattern"], group.cell["block"]
        densities.setdefault(pattern, group.cell["density"])
        rows.setdefault(pattern, {}).setdefault(block, []).append(rate_and_ratio(group))
    blocks = sorted({block for of_row in rows.values() for block in of_row}, reverse=True)
    body = [[pattern, f"{densities[pattern]:.3f}", *(" / ".join(of_row.get(b, [])) for b in blocks)]
            for pattern, of_row in rows.items()]  # fmt: skip
    return table(["pattern", "density", *(f"block {b}" for b in blocks)], body)


def rate_and_ratio(group):
    best = group.best(group.peers())
    ratio = f" ({best[0] / group.ours()['seconds']:.2f})" if best else ""
    return f"{1e-12 * rate(group):.0f}{ratio}"


TABLES = {
    "peers": peers_table,
    "rates": rates_table,
    "crossover": crossover_table,
    "patterns": patterns_table,
    "lstm": lstm_table,
    "attention": attention_table,
}


def renew(records):
    """Writes each table between the lines `<!-- begin NAME -->` and `<!-- end NAME -->`."""
    text = PAGE.read_text()
    for name, make in TABLES.items():
        begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
        head, _, rest = text.partition(begin)
        _, found, tail = rest.partition(end)
        if not found:
            raise SystemExit(f"{PAGE}: no place for the table '{name}'")
        text = head + begin + "\n".join(make(records)) + end + tail
    PAGE.write_text(text)
