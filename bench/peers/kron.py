#!/usr/bin/env python3
"""The peers of bench_kron: a product with a factor and a move of its axis, for each factor.

    bench_kron --device cuda --dtype bf16 --json own.json
    python3 kron.py --record own.json --json peers.json

Times the cells of the record in torch, forward and backward, and prints how many times as long as
ours they take. On the CPU NumPy is a peer too, for f32 and f64, with a backward written out; its
threads are those of OPENBLAS_NUM_THREADS. Where pyfastkron is installed and knows the dtype, its
forward is measured. Products of f32 are f32 or, where the record says tf32, TF32.
"""

import math

import measure
import numpy as np
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


def numpy_kron(x, factors):
    """The result, and the rows that each factor was multiplied with: copies, since NumPy gives only
    matrices that are dense to BLAS."""
    h = x.reshape(x.shape[0], *[f.shape[0] for f in reversed(factors)])
    before = []
    for factor in factors:
        rows = h.reshape(-1, factor.shape[0])
        before.append(rows)
        h = np.moveaxis((rows @ factor).reshape(*h.shape[:-1], factor.shape[1]), -1, 1)
    return h.reshape(x.shape[0], -1), before


def numpy_backward(before, factors, dy):
    """The gradients of x and of the factors."""
    shape = [f.shape[1] for f in factors]
    g = dy.reshape(dy.shape[0], *reversed(shape))
    grads = []
    for h, factor in zip(reversed(before), reversed(factors)):
        g = np.moveaxis(g, 1, -1)
        rows = g.reshape(-1, factor.shape[1])
        grads.append(h.T @ rows)
        g = (rows @ factor.T).reshape(*g.shape[:-1], factor.shape[0])
    return g.reshape(dy.shape[0], -1), grads[::-1]


def numpy_works(x, factors, y, dy, expected):
    x, dy = x.detach().numpy(), dy.numpy()
    factors = [f.detach().numpy() for f in factors]
    result, before = numpy_kron(x, factors)
    dx, grads = numpy_backward(before, factors, dy)
    for got, wanted in zip([result, dx, *grads], [y, *expected]):
        wanted = wanted.detach().numpy()
        assert np.abs(got - wanted).max() <= 1e-3 * np.abs(wanted).max()
    return [
        ("forward", "numpy", lambda: numpy_kron(x, factors)),
        ("backward", "numpy", lambda: numpy_backward(before, factors, dy)),
    ]


def works_of(cell, device):
    tf32 = cell["dtype"] == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = tf32
    dtype = torch.float32 if tf32 else measure.DTYPES[cell["dtype"]]
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
        return torch.autograd.grad(y, leaves, dy, retain_graph=True)

    works = [("forward", "torch", forward), ("backward", "torch", backward)]
    if device == "cpu" and cell["dtype"] in ("f32", "f64"):
        works += numpy_works(x, factors, y, dy, backward())
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
