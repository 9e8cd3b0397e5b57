"""Reductions, rows and losses in PyTorch, for plain.py.

A function gives the cases of a set: {name: (function, its operands ...)}.
"""

import torch
import torch.nn.functional as F


def product(t, dim):
    for axis in sorted(dim, reverse=True):
        t = t.prod(axis)
    return t


def reductions(o):
    x = o.matrix()
    everywhere = {f.__name__: f for f in (torch.sum, torch.amax, torch.var, torch.logsumexp)}
    others = {
        "mean": torch.mean,
        "amin": torch.amin,
        "stddev": torch.std,
        "prod": product,
        "vector_norm": lambda t, dim: torch.linalg.vector_norm(t, 2, dim),
    }
    of_matrix = {"all": (x, (0, 1)), "first axis": (x, (0,)), "last axis": (x, (1,))}
    of_cube = {}
    if o.has_cube():
        of_cube = {"middle axis": (o.cube(x), (1,)), "outer axes": (o.cube(x), (0, 2))}
    cases = {}
    for name, f in (everywhere | others).items():
        layouts = of_matrix | (of_cube if name in everywhere else {})
        for layout, (t, dim) in layouts.items():
            cases[f"{name}: {layout}"] = (lambda t, f=f, dim=dim: f(t, dim=dim), t)
    for name in ("argmax", "argmin", "max", "min"):
        f = getattr(torch, name)
        cases[f"{name}: first axis"] = (lambda t, f=f: f(t, 0), x)
        cases[f"{name}: last axis"] = (lambda t, f=f: f(t, 1), x)
    cases["sum_to: row"] = (lambda t: t.sum_to_size(o.columns), x)
    cases["sum_to: column"] = (lambda t: t.sum_to_size(o.rows, 1), x)
    for layout, axis in (("first axis", 0), ("last axis", 1)):
        cases |= {f"{name}: {layout}": case
                  for name, case in reduction_gradients(o, x, axis).items()}  # fmt: skip
    return cases


def reduction_gradients(o, x, axis):
    """What PyTorch's autograd computes for results along one axis, which is kept."""
    less = x.shape[axis] - 1
    deviation, most = x.std(axis, keepdim=True), x.amax(axis, keepdim=True)
    length = torch.linalg.vector_norm(x, 2, axis, keepdim=True)
    sums, dy = x.logsumexp(axis, keepdim=True), torch.randn_like(most)

    def of_var(x, dy):
        return (2 / less * dy) * (x - x.mean(axis, keepdim=True))

    def of_deviation(x, y, dy):
        return (dy / (less * y)) * (x - x.mean(axis, keepdim=True))

    def of_extremum(x, y, dy):
        found = x == y
        return dy / found.sum(axis, keepdim=True) * found

    return {
        "var_backward": (of_var, x, dy),
        "stddev_backward": (of_deviation, x, deviation, dy),
        "extremum_backward": (of_extremum, x, most, dy),
        "vector_norm_backward": (lambda x, y, dy: x * (dy / y), x, length, dy),
        "logsumexp_backward": (lambda x, y, dy: dy * (x - y).exp(), x, sums, dy),
    }


def rms_norm_backward(d, t, r, w):
    g, h = d * w, t * r
    return r * (g - h * (g * h).mean(-1, keepdim=True)), (d * h).sum(0)


def fused_rms_norm_backward(d, t, r, w):
    return torch.ops.aten._fused_rms_norm_backward(d, t, [t.shape[-1]], r, w, [True, True])


def rows(o):
    x, dy, weight, bias = o.matrix(), o.matrix(), o.values(o.columns), o.values(o.columns)
    aten, n = torch.ops.aten, o.columns
    _, mean, rstd = aten.native_layer_norm(x, [n], weight, bias, 1e-5)
    y, log_y = torch.softmax(x, -1), torch.log_softmax(x, -1)
    every = [True, True, True]

    def of_sum(d, t, m, r, w, b, further):
        dx, *of_weights = aten.native_layer_norm_backward(d, t, [n], m, r, w, b, every)
        return dx + further, *of_weights

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
        "add_layer_norm: last axis": (
            lambda a, b, w, c: (a + b, F.layer_norm(a + b, [n], w, c)),
            *(x, dy, weight, bias),
        ),
        "layer_norm_backward: of a sum": (of_sum, dy, x, mean, rstd, weight, bias, y),
        "rms_norm_backward: last axis": (
            rms_norm_backward if o.device == "cpu" else fused_rms_norm_backward,
            *(dy, x, rstd, weight),
        ),
        "rms_norm: last axis": (lambda t, w: F.rms_norm(t, [n], w), x, weight),
        "add_rms_norm: last axis": (
            lambda a, b, w: (a + b, F.rms_norm(a + b, [n], w)),
            *(x, dy, weight),
        ),
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

    smooth = torch.softmax(o.values(count, classes), -1)
    dloss = torch.ones(count, 1, device=o.device)

    def soft(x, w):
        return -(w * torch.log_softmax(x, -1, dtype=torch.float32)).sum(-1)

    def soft_backward(d, x, w):
        p = torch.softmax(x, -1, dtype=torch.float32) * w.sum(-1, keepdim=True, dtype=torch.float32)
        return (d * (p - w)).to(x.dtype)

    def weights(t):
        return (F.one_hot(t, classes) * 0.9 + 0.1 / classes).to(logits.dtype)

    return {
        "soft_cross_entropy: last axis": (soft, logits, smooth),
        "soft_cross_entropy_backward: last axis": (soft_backward, dloss, logits, smooth),
        "target_weights: last axis": (weights, targets),
        "cross_entropy: last axis": (F.cross_entropy, logits, targets),
        "cross_entropy_backward: last axis": (cross_entropy_backward, logits, targets),
        "embedding: first axis": (F.embedding, tokens, table),
        "embedding_backward: first axis": (
            lambda d, t: aten.embedding_dense_backward(d, t, classes, -1, False),
            *(dy, tokens),
        ),
    }


def pointwise(o):
    x, t = o.matrix(), o.matrix()
    p, q = t.sigmoid(), x.sigmoid()
    log_q = q.log()
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
        "smooth_l1_loss: all": (lambda a, b: F.smooth_l1_loss(a, b, beta=0.5), x, t),
        "smooth_l1_loss_backward: all": (
            lambda d, a, b: aten.smooth_l1_loss_backward(d, a, b, mean, 0.5),
            *(dloss, x, t),
        ),
        "binary_cross_entropy: all": (F.binary_cross_entropy, q, p),
        "binary_cross_entropy_backward: all": (
            lambda d, a, b: aten.binary_cross_entropy_backward(d, a, b, None, mean),
            *(dloss, q, p),
        ),
        "kl_div: all": (lambda a, b: F.kl_div(a, b, reduction="mean"), log_q, p),
        "kl_div_backward: all": (lambda d, a: d * -a / a.numel(), dloss, p),
    }
