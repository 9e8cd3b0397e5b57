#!/usr/bin/env python3
"""The peer of bench_kron: a product with a factor and a move of its axis, for each factor, in torch.

    bench_kron --device cuda --dtype bf16 --json own.json
    python3 kron.py --record own.json --json peers.json

Times the cells of the record, forward and backward, and prints how many times as long as ours they
take. Where pyfastkron is installed and knows the dtype, its forward is measured too.
"""

import math

import measure
import torch

try:
    import pyfastkron.fastkrontorch as fastkron
except ImportError:
    fastkron = None


def kron(x, factors):
    h = x.view(x.shape[0], *[f.shape[0] for f in reversed(factors)])
    for factor in factors:
        h = (h @ factor).movedim(-1, 1)
    return h.reshape(x.shape[0], -1)


def works_of(cell, device):
    dtype = measure.DTYPES[cell["dtype"]]
    extents = [int(p) for p in cell["factors"].split()]
    x = torch.randn(cell["rows"], math.prod(extents), device=device, dtype=dtype)
    factors = [torch.randn(p, p, device=device, dtype=dtype) / math.sqrt(p) for p in extents]
    leaves = [x.requires_grad_()] + [f.requires_grad_() for f in factors]
    y = kron(x, factors)
    dy = torch.randn_like(y)

    def forward():
        with torch.no_grad():
            kron(x, factors)

    def backward():
        torch.autograd.grad(y, leaves, dy, retain_graph=True)

    works = [("forward", "torch", forward), ("backward", "torch", backward)]
    if fastkron and cell["dtype"] in ("f32", "f64"):
        detached = x.detach(), [f.detach() for f in reversed(factors)]

        def fast():
            fastkron.gemkm(*detached)

        works.append(("forward", "fastkron", fast))
    return works


def main():
    arguments = measure.parse_arguments(__doc__, "bench_kron")
    device = arguments.device
    dtype, cells = measure.read_figures(arguments.record)
    timer = measure.Timer(arguments.runs, device=device)
    record = measure.Record("kron", dtype, arguments.commit, device)
    print(f"torch {torch.__version__} on {device}; us")
    print("  rows        factors dtype     pass       peer         us        bs   times")
    for cell, mine in cells:
        works = works_of(cell, device)
        for (what, by, _), times in zip(works, timer.interleave([w[2] for w in works])):
            record.add(cell, what, by, times, mine[what]["flops"])
            median, ours = times[len(times) // 2], mine[what]["seconds"]
            print(
                f"{cell['rows']:6} {cell['factors']:>14} {cell['dtype']:>5} {what:>8} {by:>10} "
                f"{median * 1e6:10.1f} {ours * 1e6:9.1f} {median / ours:7.2f}",
                flush=True,
            )
    if arguments.json:
        record.write(arguments.json)


if __name__ == "__main__":
    main()
