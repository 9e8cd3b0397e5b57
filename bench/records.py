"""The records of bench/results: what they hold, and what follows from them."""

import collections
import json

OURS = "bs"
# Products as they are with the zeros left in: no peers, but what decides whether sparsity pays.
DENSE = ("dense", "torch dense")


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


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return lines + [""]


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


def over_random(groups):
    """{(pattern, block, density): {product: rate over that on random layouts as dense}}."""
    random = collections.defaultdict(list)
    for group in groups:
        if group.cell["pattern"] == "random":
            known = random[group.cell["block"], group.what]
            known.append((group.cell["density"], rate(group)))
    ratios = collections.OrderedDict()
    for group in groups:
        cell = group.cell
        if cell["pattern"] == "random" or not random[cell["block"], group.what]:
            continue
        alike = interpolated(random[cell["block"], group.what], cell["density"])
        key = (cell["pattern"], cell["block"], cell["density"])
        ratios.setdefault(key, {})[group.what] = rate(group) / alike
    return ratios
