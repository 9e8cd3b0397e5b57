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


def copies(o):
    x = o.matrix()
    wide = o.values(o.rows, 2 * o.columns)
    other = torch.bfloat16 if x.dtype == torch.float32 else torch.float32
    views = {
        "contiguous": x,
        "transposed": x.t(),
        "left half": wide[:, : o.columns],
        "every second": wide[:, ::2],
        "shifted by one": wide[:, 1 : o.columns + 1],
    }
    if o.has_heads():
        heads = o.heads(x)
        views |= {
            "bshd to bhsd": heads.permute(0, 2, 1, 3),
            "bshd to bhds": heads.permute(0, 2, 3, 1),
            "bshd to sbhd": heads.permute(1, 0, 2, 3),
            "bshd to dhsb": heads.permute(3, 2, 1, 0),
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

    def add(a, b):
        return a + b

    cases = {
        "add: contiguous": (add, x, y),
        "add: row": (add, x, o.values(o.columns)),
        "add: column": (add, x, o.values(o.rows, 1)),
        "add: transposed": (add, x, turned.t()),
        "add: every second": (add, x, o.values(o.rows, 2 * o.columns)[:, ::2]),
        "add: number": (lambda a: a + 1.5, x),
        "mul: row": (lambda a, b: a * b, x, o.values(o.columns)),
        "eq: contiguous": (lambda a, b: a == b, x, y),
        "where: contiguous": (torch.where, x < y, x, y),
        "div: contiguous": (torch.div, x, y),
        "minimum: contiguous": (torch.minimum, x, y),
        "maximum: contiguous": (torch.maximum, x, y),
        "pow: number": (lambda a: a**3, x),
    }
    for name, dtype, end in (("u8", torch.uint8, 256), ("bool", torch.bool, 2)):
        a, b = (o.indices(end, o.rows, o.columns).to(dtype) for _ in range(2))
        cases[f"add: {name}"] = (add, a, b)
        cases[f"mul: {name}"] = (torch.mul, a, b)
    if o.has_cube():
        first, middle = o.values(1, o.rows // 4, o.columns), o.values(4, 1, o.columns)
        cases["add: first axis"] = (add, o.cube(x), first)
        cases["add: middle axis"] = (add, o.cube(x), middle)
    return cases


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
        "softplus": F.softplus,
    }
    aten = torch.ops.aten
    backward = {
        "gelu_backward": lambda a, dy: aten.gelu_backward(dy, a),
        "gelu_backward tanh": lambda a, dy: aten.gelu_backward(dy, a, approximate="tanh"),
        "silu_backward": lambda a, dy: aten.silu_backward(dy, a),
        "relu_backward": lambda a, dy: aten.threshold_backward(dy, a, 0),
        "softplus_backward": lambda a, dy: aten.softplus_backward(dy, a, 1, 20),
    }
    cases = {f"{name}: contiguous": (f, x) for name, f in forward.items()}
    cases |= {f"{name}: contiguous": (f, x, y) for name, f in backward.items()}
    cases["gelu: transposed"] = (lambda t: F.gelu(t).contiguous(), x.t())
    cases["dropout: contiguous"] = (lambda t: F.dropout(t, 0.1), x)
    cases["relu, dropout: contiguous"] = (lambda t: F.dropout(F.relu(t), 0.1), x)
    return cases


def reductions(o):
    x = o.matrix()
    operations = {
        "sum": torch.sum,
        "amax": torch.amax,
        "var": torch.var,
        "logsumexp": torch.logsumexp,
    }
    cases = {}
    for name, f in operations.items():
        axes = {
            "all": (x, (0, 1)),
            "first axis": (x, (0,)),
            "last axis": (x, (1,)),
        }
        if o.has_cube():
            axes["middle axis"] = (o.cube(x), (1,))
            axes["outer axes"] = (o.cube(x), (0, 2))
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
        "add_rms_norm: last axis": (
            lambda a, b, w: (a + b, F.rms_norm(a + b, [n], w)),
            *(x, dy, weight),
        ),
    }


def products(o):
    width = min(o.columns, 4096)
    x, w, turned = o.matrix(), o.values(o.columns, width), o.values(width, o.columns)
    return {
        "matmul: contiguous": (torch.matmul, x, w),
        "matmul: transposed": (lambda a, b: a @ b.t(), x, turned),
    }


def losses(o):
    classes, count = min(max(1, o.columns * 500 // 64), 131072), max(1, o.rows // 2)
    width = max(1, o.columns // 4)
    logits, targets = o.values(count, classes), o.indices(classes, count)
    table, dy = o.values(classes, width), o.values(2 * o.rows, width)
    tokens = o.indices(classes, 2 * o.rows)
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


def selections(o):
    x, y = o.matrix(), o.matrix()
    some, across = o.indices(o.rows, o.rows), o.indices(o.columns, o.columns)
    places = o.indices(o.columns, o.rows, o.columns)
    k = min(16, o.columns)
    cases = {
        "index_select: first axis": (lambda t, i: t.index_select(0, i), x, some),
        "index_select: last axis": (lambda t, i: t.index_select(1, i), x, across),
        "gather: last axis": (lambda t, i: t.gather(1, i), x, places),
        "gather_backward: last axis": (
            lambda d, i: torch.zeros_like(d).scatter_add_(1, i, d),
            *(y, places),
        ),
        "scatter: last axis": (lambda t, i, s: t.scatter(1, i, s), x, places, y),
        "scatter_add: last axis": (lambda t, i, s: t.scatter_add(1, i, s), x, places, y),
        "concat: first axis": (lambda a, b: torch.cat((a, b), 0), x, y),
        "concat: last axis": (lambda a, b: torch.cat((a, b), 1), x, y),
        "cumsum: last axis": (lambda t: t.cumsum(1), x),
        "cumsum: first axis": (lambda t: t.cumsum(0), x),
        "cumprod: last axis": (lambda t: t.cumprod(1), 1 + 0.1 * x),
        "argsort: last axis": (lambda t: t.argsort(dim=1, stable=True), x),
        "sort: last axis": (lambda t: t.sort(dim=1, stable=True), x),
        "topk 16: last axis": (lambda t: t.topk(k, 1), x),
        "nonzero: half of all": (lambda m: m.view(-1).nonzero(), x > 0),
    }
    if o.has_heads():
        half = 32
        rates = 10000 ** (-torch.arange(half, device=o.device) / half)
        angles = torch.outer(torch.arange(o.rows // 4, device=o.device), rates)
        cos, sin = (f(torch.cat((angles, angles), 1)).to(x.dtype) for f in (torch.cos, torch.sin))

        def rope(v, cos, sin):
            turned = torch.cat((-v[..., half:], v[..., :half]), -1)
            return v * cos + turned * sin

        cases["rope: bshd"] = (rope, o.heads(x).permute(0, 2, 1, 3), cos, sin)
        cases["rope_backward: bshd"] = (rope, o.heads(x).permute(0, 2, 1, 3), cos, -sin)
    return cases


def fills(o):
    shape = (o.rows, o.columns)
    return {
        "full: contiguous": (lambda: torch.full(shape, 1.5, **o.options),),
        "zeros: contiguous": (lambda: torch.zeros(shape, **o.options),),
        "rand: contiguous": (lambda: torch.rand(shape, **o.options),),
        "randn: contiguous": (lambda: torch.randn(shape, **o.options),),
        "bernoulli: contiguous": (lambda: torch.empty(shape, **o.options).bernoulli_(0.3),),
    }


def pointwise(o):
    x, t = o.matrix(), o.matrix()
    p, log_p = t.sigmoid(), x.sigmoid().log()
    aten, mean = torch.ops.aten, 1
    dloss = torch.ones((), **o.options)
    logits = F.binary_cross_entropy_with_logits

    def logits_backward(d, a, b):
        return d * (a.sigmoid() - b) / a.numel()

    def l1_backward(d, a, b):
        return d * (a - b).sign() / a.numel()

    return {
        "mse_loss: all": (F.mse_loss, x, t),
        "mse_loss_backward: all": (
            lambda d, a, b: aten.mse_loss_backward(d, a, b, mean),
            *(dloss, x, t),
        ),
        "l1_loss: all": (F.l1_loss, x, t),
        "l1_loss_backward: all": (l1_backward, dloss, x, t),
        "huber_loss: all": (F.huber_loss, x, t),
        "huber_loss_backward: all": (
            lambda d, a, b: aten.huber_loss_backward(d, a, b, mean, 1.0),
            *(dloss, x, t),
        ),
        "binary_cross_entropy_with_logits: all": (logits, x, p),
        "binary_cross_entropy_with_logits_backward: all": (logits_backward, dloss, x, p),
        "kl_div: all": (lambda a, b: F.kl_div(a, b, reduction="mean"), log_p, p),
    }


def optimisers(o):
    """The optimisers of torch.optim, of all tensors at once where PyTorch has that."""
    parameters, averages = [], []
    for i in range(500):
        shape = [64 + 13 * i]
        if i % 2:
            shape = [max(1, o.rows // 64) if i % 20 == 1 else 16 + i % 7, o.columns]
        p = o.values(*shape).requires_grad_()
        p.grad = o.values(*shape)
        parameters.append(p)
        averages.append(torch.zeros_like(p.detach()))
    optim, fused = torch.optim, {"fused": True}
    kinds = {
        "adamw": optim.AdamW(parameters, **fused),
        "adam": optim.Adam(parameters, **fused),
        "sgd": optim.SGD(parameters, lr=1e-3, momentum=0.9, **fused),
        "rmsprop": optim.RMSprop(parameters, foreach=True),
        "adafactor": optim.Adafactor(parameters, foreach=True),
    }
    muon = optim.Muon([p for p in parameters if p.dim() == 2])
    gradients = [p.grad for p in parameters]
    values = [p.detach() for p in parameters]
    cases = {f"{name}: 500 tensors": (kind.step,) for name, kind in kinds.items()}
    cases["muon: 250 matrices"] = (muon.step,)
    cases["ema: 500 tensors"] = (lambda: torch._foreach_lerp_(averages, values, 0.01),)
    cases["grad_norm: 500 tensors"] = (lambda: torch.nn.utils.get_total_norm(gradients),)
    cases["clip_gradients: 500 tensors"] = (
        lambda: torch.nn.utils.clip_grad_norm_(parameters, 0.5),
    )
    return cases


def images(o):
    cases = {}
    if o.rows * o.columns < 32768:
        return cases

    def planes(x):
        # On a GPU PyTorch's autograd gives group norm planes, whatever the format.
        return x if o.device == "cpu" else x.contiguous()

    for layout in ("channels-last", "row-major"):
        kind = torch.channels_last if layout == "channels-last" else torch.contiguous_format

        def image(h, w, kind=kind):
            return o.values(o.rows * o.columns // 32768, 64, h, w).to(memory_format=kind)

        x, other, dy, quarter = image(32, 16), image(32, 16), image(32, 16), image(16, 8)
        weight, bias = o.values(64), o.values(64)
        mean, rstd = torch.zeros(64, device=o.device), torch.ones(64, device=o.device)
        aten = torch.ops.aten
        winners = F.max_pool2d(x, 3, 2, 1, return_indices=True)[1]
        count = x.shape[0]
        sizes, bordered = (count, 64, 512, 16), image(34, 18)
        _, *of_groups = aten.native_group_norm(planes(x), weight, bias, *sizes, 1e-5)

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
                "group_norm_backward 16": (
                    lambda dy, x, mean, rstd: aten.native_group_norm_backward(
                        planes(dy), planes(x), mean, rstd, weight, *sizes, [True, True, True]
                    ),
                    *(dy, x, *of_groups),
                ),
                "max_pool2d": (lambda x: F.max_pool2d(x, 3, 2, 1), x),
                "max_pool2d_backward": (
                    lambda dy, x, winners: aten.max_pool2d_with_indices_backward(
                        dy, x, [3, 3], [2, 2], [1, 1], [1, 1], False, winners
                    ),
                    *(quarter, x, winners),
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
                "interpolate_backward": (
                    lambda dy: aten.upsample_bilinear2d_backward(
                        dy, [32, 16], [count, 64, 16, 8], False
                    ),
                    dy,
                ),
                "pad_backward": (
                    lambda dy, x: aten.reflection_pad2d_backward(dy, x, [1, 1, 1, 1]),
                    *(bordered, x),
                ),
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
    "products": products,
    "losses": losses,
    "pointwise": pointwise,
    "select": selections,
    "fill": fills,
    "optimisers": optimisers,
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
                ours = figures[what]
                record.add(cell, what, by, seconds, ours["flops"], ours["bytes"])
                print(f"{what:40} {by:16} {1e6 * seconds[len(seconds) // 2]:10.1f}", flush=True)
    if arguments.json:
        record.write(arguments.json)


if __name__ == "__main__":
    main()
