#!/usr/bin/env python3
"""The peer of bench_plain: the operations of its record in PyTorch.

    bench_plain --device cuda --dtype bf16 --json own.json
    python3 plain.py --record own.json --json peers.json

    torch             eager; --eager 0 leaves it out
    torch compiled    torch.compile of the same function; --compiled 0 leaves it out, and
                      --workers N lets N processes compile before anything is timed
"""

import itertools
import multiprocessing

import measure
import plain_elementwise
import plain_images
import plain_optimisers
import plain_reductions
import plain_selections
import torch
import torch._inductor.config


class Operands:
    """Tensors of one cell: matrices [rows, columns]."""

    def __init__(self, cell, dtype, device):
        self.rows, self.columns = cell["rows"], cell["columns"]
        self.options = {"dtype": dtype, "device": device}
        self.device = device

    def values(self, *shape):
        return torch.randn(*shape, **self.options)

    def matrix(self):
        return self.values(self.rows, self.columns)

    def indices(self, end, *shape):
        return torch.randint(end, shape, device=self.device)

    def has_cube(self):
        return self.rows % 4 == 0

    def cube(self, x):
        return x.view(4, self.rows // 4, self.columns)

    def has_heads(self):
        return self.has_cube() and self.columns % 64 == 0

    def heads(self, x):
        return x.view(4, self.rows // 4, self.columns // 64, 64)


def products(o):
    width = min(o.columns, 4096)
    x, w, turned = o.matrix(), o.values(o.columns, width), o.values(width, o.columns)
    return {
        "matmul: contiguous": (torch.matmul, x, w),
        "matmul: transposed": (lambda a, b: a @ b.t(), x, turned),
    }


SETS = {
    "copy": plain_elementwise.copies,
    "binary": plain_elementwise.binaries,
    "compare": plain_elementwise.comparisons,
    "unary": plain_elementwise.unaries,
    "reduce": plain_reductions.reductions,
    "rows": plain_reductions.rows,
    "products": products,
    "losses": plain_reductions.losses,
    "pointwise": plain_reductions.pointwise,
    "select": plain_selections.selections,
    "fill": plain_elementwise.fills,
    "optimisers": plain_optimisers.optimisers,
    "images": plain_images.images,
}
# What "sizes" takes its cases from.
CHOSEN = ("copy", "binary", "unary", "reduce", "rows", "select")


def cases_of(cell, dtype, device):
    """Name, function and operands of what a cell's sets have."""
    sets = CHOSEN if cell["set"] == "sizes" else [cell["set"]]
    for name in sets:
        if name in SETS:
            for what, (f, *inputs) in SETS[name](Operands(cell, dtype, device)).items():
                yield what, f, inputs


def compiled(f):
    """The function compiled. Dynamo would run the ninth of those that share a lambda eagerly."""
    torch.compiler.reset()
    return torch.compile(f, dynamic=False)


def choose_alone():
    """Kernels choose their launches by timing them: not by what was timed beside others."""
    torch._inductor.config.autotune_local_cache = False


def compile_share(first, arguments):
    """Compiles every so many-th case. Inductor's cache keeps it for the process that times."""
    choose_alone()
    torch._inductor.config.compile_threads = 1
    dtype, cells = measure.read_figures(arguments.record)
    number = itertools.count()
    for cell, figures in cells:
        for what, f, inputs in cases_of(cell, measure.DTYPES[dtype], arguments.device):
            if what not in figures or next(number) % arguments.workers != first:
                continue
            try:
                compiled(f)(*inputs)
            except Exception as error:  # timing gives it as a figure
                print(f"{what}: {type(error).__name__}", flush=True)


def compile_all(arguments):
    spawn = multiprocessing.get_context("spawn")
    workers = [
        spawn.Process(target=compile_share, args=(i, arguments)) for i in range(arguments.workers)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def ways_of(f, arguments):
    if arguments.eager:
        yield "torch", f
    if arguments.compiled:
        yield "torch compiled", compiled(f)


def main():
    options = {"--eager": 1, "--compiled": 1, "--workers": 0}
    arguments = measure.parse_arguments(__doc__, "bench_plain", options)
    if arguments.compiled and arguments.workers:
        choose_alone()
        compile_all(arguments)
    dtype, cells = measure.read_figures(arguments.record)
    record = measure.Record("plain", dtype, arguments.commit, arguments.device)
    timer = measure.Timer(arguments.runs, device=arguments.device)
    for cell, figures in cells:
        for what, f, inputs in cases_of(cell, measure.DTYPES[dtype], arguments.device):
            if what not in figures:
                continue
            for by, run in ways_of(f, arguments):
                try:
                    seconds = timer.interleave([lambda run=run: run(*inputs)])[0]
                except Exception as error:  # a peer that fails is a figure of its own
                    record.add_failure(cell, what, by, error)
                    continue
                ours = figures[what]
                record.add(cell, what, by, seconds, ours["flops"], ours["bytes"])
                print(f"{what:40} {by:16} {1e6 * seconds[len(seconds) // 2]:10.1f}", flush=True)
    if arguments.json:
        record.write(arguments.json)


if __name__ == "__main__":
    main()
