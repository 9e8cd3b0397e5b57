#!/usr/bin/env python3
"""The peer of bench_plain: the operations of its record in PyTorch.

    bench_plain --device cuda --dtype bf16 --json own.json
    python3 plain.py --record own.json --json peers.json

    torch             eager
    torch compiled    torch.compile of the same function; --compiled 0 leaves it out
"""

import measure
import torch
import torch.nn.functional as F


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


def copies(o):
    x = o.matrix()
    heads = x.view(4, o.rows // 4, o.columns // 64, 64)
    wide = o.values(o.rows, 2 * o.columns)
    other = torch.bfloat16 if x.dtype == torch.float32 else torch.float32
    views = {
        "contiguous": x,
        "transposed": x.t(),
        "bshd to bhsd": heads.permute(0, 2, 1, 3),
        "bshd to bhds": heads.permute(0, 2, 3, 1),
        "bshd to sbhd": heads.permute(1, 0, 2, 3),
        "bshd to dhsb": heads.permute(3, 2, 1, 0),
        "left half": wide[:, : o.columns],
        "every second": wide[:, ::2],
        "shifted by one": wide[:, 1 : o.columns + 1],
    }
    cases = {
        f"copy: {name}": (lambda v: v.clone(memory_format=torch.contiguous_format), view)
        for name, view in views.items()
    }
    dense = torch.contiguous_format
    cases["cast: contiguous"] = (lambda v: v.to(other), x)
    cases["cast: transposed"] = (lambda v: v.to(other, memory_format=dense), x.t())
    return cases


def binaries(o):
    x, y, turned = o.matrix(), o.matrix(), o.values(o.columns, o.rows)
    cube = x.view(4, o.rows // 4, o.columns)

    def add(a, b):
        return a + b

    return {
        "add: contiguous": (add, x, y),
        "add: row": (add, x, o.values(o.columns)),
        "add: column": (add, x, o.values(o.rows, 1)),
        "add: transposed": (add, x, turned.t()),
        "add: first axis": (add, cube, o.values(1, o.rows // 4, o.columns)),
        "add: middle axis": (add, cube, o.values(4, 1, o.columns)),
        "add: every second": (add, x, o.values(o.rows, 2 * o.columns)[:, ::2]),
        "add: number": (lambda a: a + 1.5, x),
        "mul: row": (lambda a, b: a * b, x, o.values(o.columns)),
        "eq: contiguous": (lambda a, b: a == b, x, y),
        "where: contiguous": (torch.where, x < y, x, y),
    }


def unaries(o):
    x, y = o.matrix(), o.matrix()
    forward = {
        "gelu": F.gelu,
        "gelu tanh": lambda t: F.gelu(t, approximate="tanh"),
        "silu": F.silu,
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
        "relu": torch.relu,
        "exp": torch.exp,
        "neg": torch.neg,
    }
    aten = torch.ops.aten
    backward = {
        "gelu_backward": lambda a, dy: aten.gelu_backward(dy, a),
        "gelu_backward tanh": lambda a, dy: aten.gelu_backward(dy, a, approximate="tanh"),
        "silu_backward": lambda a, dy: aten.silu_backward(dy, a),
        "relu_backward": lambda a, dy: aten.threshold_backward(dy, a, 0),
    }
    cases = {f"{name}: contiguous": (f, x) for name, f in forward.items()}
    cases |= {f"{name}: contiguous": (f, x, y) for name, f in backward.items()}
    cases["gelu: transposed"] = (lambda t: F.gelu(t).contiguous(), x.t())
    cases["dropout: contiguous"] = (lambda t: F.dropout(t, 0.1), x)
    return cases


def reductions(o):
    x = o.matrix()
    cube = x.view(4, o.rows // 4, o.columns)
    operations = {"sum": torch.sum, "amax": torch.amax, "var": torch.var}
    cases = {}
    for name, f in operations.items():
        axes = {
            "all": (x, (0, 1)),
            "first axis": (x, (0,)),
            "last axis": (x, (1,)),
            "middle axis": (cube, (1,)),
            "outer axes": (cube, (0, 2)),
        }
        for layout, (t, dim) in axes.items():
            cases[f"{name}: {layout}"] = (lambda t, f=f, dim=dim: f(t, dim=dim), t)
    cases["argmax: last axis"] = (lambda t: t.argmax(1), x)
    cases["argmax: first axis"] = (lambda t: t.argmax(0), x)
    return cases


def rows(o):
    x, dy, weight, bias = o.matrix(), o.matrix(), o.values(o.columns), o.values(o.columns)
    aten, n = torch.ops.aten, o.columns
    _, mean, rstd = aten.native_layer_norm(x, [n], weight, bias, 1e-5)
    y, log_y = torch.softmax(x, -1), torch.log_softmax(x, -1)
    every = [True, True, True]
    return {
        "softmax: last axis": (lambda t: torch.softmax(t, -1), x),
        "softmax_backward: last axis": (
            lambda a, b: aten._softmax_backward_data(a, b, -1, b.dtype),
            dy,
            y,
        ),
        "log_softmax: last axis": (lambda t: torch.log_softmax(t, -1), x),
        "log_softmax_backward: last axis": (
            lambda a, b: aten._log_softmax_backward_data(a, b, -1, b.dtype),
            dy,
            log_y,
        ),
        "layer_norm: last axis": (lambda t, w, b: F.layer_norm(t, [n], w, b), x, weight, bias),
        "layer_norm_backward: last axis": (
            lambda d, t, m, r, w, b: aten.native_layer_norm_backward(d, t, [n], m, r, w, b, every),
            *(dy, x, mean, rstd, weight, bias),
        ),
        "rms_norm: last axis": (lambda t, w: F.rms_norm(t, [n], w), x, weight),
    }


def losses(o):
    classes = o.columns // 64 * 500
    logits = o.values(o.rows // 2, classes)
    targets = torch.randint(classes, (o.rows // 2,), device=o.device)
    table, dy = o.values(classes, o.columns // 4), o.values(2 * o.rows, o.columns // 4)
    tokens = torch.randint(classes, (2 * o.rows,), device=o.device)
    aten = torch.ops.aten

    def cross_entropy_backward(x, t):
        p = torch.softmax(x, -1, dtype=torch.float32)
        p = p - F.one_hot(t, classes)
        return (p / t.numel()).to(x.dtype)

    return {
        "cross_entropy: last axis": (F.cross_entropy, logits, targets),
        "cross_entropy_backward: last axis": (cross_entropy_backward, logits, targets),
        "embedding: first axis": (F.embedding, tokens, table),
        "embedding_backward: first axis": (
            lambda d, t: aten.embedding_dense_backward(d, t, classes, -1, False),
            *(dy, tokens),
        ),
    }


def images(o):
    cases = {}
    for layout in ("channels-last", "row-major"):
        kind = torch.channels_last if layout == "channels-last" else torch.contiguous_format

        def image(h, w, kind=kind):
            return o.values(o.rows * o.columns // 32768, 64, h, w).to(memory_format=kind)

        x, other, dy, quarter = image(32, 16), image(32, 16), image(32, 16), image(16, 8)
        weight, bias = o.values(64), o.values(64)
        mean, rstd = torch.zeros(64, device=o.device), torch.ones(64, device=o.device)
        aten = torch.ops.aten
        winners = F.max_pool2d(x, 3, 2, 1, return_indices=True)[1]

        def batch_norm_backward(dy, x):
            return aten.native_batch_norm_backward(
                dy, x, weight, None, None, mean, rstd, True, 1e-5, [True, True, True]
            )

        def backward_add_relu(dy, x, y):
            dz = aten.threshold_backward(dy, y, 0)
            return dz, *batch_norm_backward(dz, x)

        cases |= {
            f"{name}: {layout}": case
            for name, case in {
                "batch_norm": (lambda x: F.batch_norm(x, None, None, weight, bias, True), x),
                "batch_norm add relu": (
                    lambda x, y: F.relu(F.batch_norm(x, None, None, weight, bias, True) + y),
                    *(x, other),
                ),
                "batch_norm_backward": (batch_norm_backward, dy, x),
                "batch_norm_backward add relu": (backward_add_relu, dy, x, other),
                "batch_norm_by": (lambda x: F.batch_norm(x, mean, rstd, weight, bias), x),
                "group_norm 16": (lambda x: F.group_norm(x, 16, weight, bias), x),
                "max_pool2d": (lambda x: F.max_pool2d(x, 3, 2, 1), x),
                "max_pool2d_backward": (
                    lambda dy, x: aten.max_pool2d_with_indices_backward(
                        dy, x, [3, 3], [2, 2], [1, 1], [1, 1], False, winners
                    ),
                    *(quarter, x),
                ),
                "avg_pool2d": (lambda x: F.avg_pool2d(x, 2), x),
                "avg_pool2d_backward": (
                    lambda dy, x: aten.avg_pool2d_backward(
                        dy, x, [2, 2], [2, 2], [0, 0], False, True, None
                    ),
                    *(quarter, x),
                ),
                "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, 1), x),
                "interpolate": (lambda x: F.interpolate(x, (32, 16), mode="bilinear"), quarter),
                "pad": (lambda x: F.pad(x, (1, 1, 1, 1), "reflect"), x),
            }.items()
        }
    return cases


SETS = {
    "copy": copies,
    "binary": binaries,
    "unary": unaries,
    "reduce": reductions,
    "rows": rows,
    "losses": losses,
    "images": images,
}


def main():
    arguments = measure.parse_arguments(__doc__, "bench_plain", {"--compiled": 1})
    dtype, cells = measure.read_figures(arguments.record)
    record = measure.Record("plain", dtype, arguments.commit, arguments.device)
    timer = measure.Timer(arguments.runs, device=arguments.device)
    for cell, figures in cells:
        if cell["set"] not in SETS:
            continue
        operands = Operands(cell, measure.DTYPES[dtype], arguments.device)
        for what, (f, *inputs) in SETS[cell["set"]](operands).items():
            if what not in figures:
                continue
            runs = [("torch", f)]
            if arguments.compiled:
                runs.append(("torch compiled", torch.compile(f, dynamic=False)))
            for by, run in runs:
                try:
                    seconds = timer.interleave([lambda run=run: run(*inputs)])[0]
                except Exception as error:  # a peer that fails is a figure of its own
                    record.add_failure(cell, what, by, error)
                    continue
                record.add(cell, what, by, seconds, bytes=figures[what]["bytes"])
                print(f"{what:40} {by:16} {1e6 * seconds[len(seconds) // 2]:10.1f}", flush=True)
    if arguments.json:
        record.write(arguments.json)


if __name__ == "__main__":
    main()
