"""Copies and functions of single elements in PyTorch, for plain.py.

A function gives the cases of a set: {name: (function, its operands ...)}.
"""

import torch
import torch.nn.functional as F


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


def positive(x):
    return 1 + 0.1 * x


def binaries(o):
    x, y, turned = o.matrix(), o.matrix(), o.values(o.columns, o.rows)
    base = positive(o.matrix())

    def add(a, b):
        return a + b

    cases = {
        "add: contiguous": (add, x, y),
        "add: row": (add, x, o.values(o.columns)),
        "add: column": (add, x, o.values(o.rows, 1)),
        "add: transposed": (add, x, turned.t()),
        "add: every second": (add, x, o.values(o.rows, 2 * o.columns)[:, ::2]),
        "add: number": (lambda a: a + 1.5, x),
        "sub: from a number": (lambda a: 1.5 - a, x),
        "sub: contiguous": (torch.sub, x, y),
        "mul: row": (lambda a, b: a * b, x, o.values(o.columns)),
        "div: contiguous": (torch.div, x, y),
        "minimum: contiguous": (torch.minimum, x, y),
        "maximum: contiguous": (torch.maximum, x, y),
        "pow: number": (lambda a: a**3, x),
        "pow: contiguous": (torch.pow, base, y),
        "remainder: contiguous": (torch.remainder, x, base),
        "accumulate: contiguous": (torch.Tensor.add_, x.clone(), y),
    }
    for name, dtype, end in (("u8", torch.uint8, 256), ("bool", torch.bool, 2)):
        a, b = (o.indices(end, o.rows, o.columns).to(dtype) for _ in range(2))
        cases[f"add: {name}"] = (add, a, b)
        cases[f"mul: {name}"] = (torch.mul, a, b)
    if o.has_cube():
        first, middle = o.values(1, o.rows // 4, o.columns), o.values(4, 1, o.columns)
        cases["add: first axis"] = (add, o.cube(x), first)
        cases["add: middle axis"] = (add, o.cube(x), middle)
    return cases | binary_gradients(x, y, o.matrix())


def binary_gradients(a, b, dy):
    """What PyTorch's autograd computes for one operand; pow's result is at hand there."""
    base, divisor = positive(a), positive(b)

    def of_choice(kept):
        def gradient(a, b, dy):
            dy = torch.where(a == b, dy / 2, dy)
            return dy.masked_fill(~kept(a, b), 0)

        return gradient

    def of_exponent(a, y, dy):
        return dy * (y * a.log())

    def of_remainder(a, b, dy):
        return -dy * torch.div(a, b, rounding_mode="floor")

    return {
        "div_backward_b: contiguous": (lambda a, b, dy: -dy * (a / b / b), a, divisor, dy),
        "pow_backward_a: contiguous": (lambda a, b, dy: dy * (b * a.pow(b - 1)), base, b, dy),
        "pow_backward_b: contiguous": (of_exponent, base, base**b, dy),
        "minimum_backward: contiguous": (of_choice(torch.le), a, b, dy),
        "maximum_backward: contiguous": (of_choice(torch.ge), a, b, dy),
        "remainder_backward_b: contiguous": (of_remainder, a, divisor, dy),
    }


def comparisons(o):
    x, y = o.matrix(), o.matrix()
    some, others, same = x > 0, y > 0, x.clone()
    cases = {f"{f.__name__}: contiguous": (f, x, y)
             for f in (torch.eq, torch.ne, torch.lt, torch.le, torch.gt, torch.ge)}  # fmt: skip
    cases |= {f"{f.__name__}: contiguous": (f, x)
              for f in (torch.isnan, torch.isinf, torch.isfinite)}  # fmt: skip
    cases |= {f"{f.__name__}: bool": (f, some, others)
              for f in (torch.logical_and, torch.logical_or, torch.logical_xor)}  # fmt: skip
    return cases | {
        "lt: number": (lambda a: a < 0.5, x),
        "where: contiguous": (torch.where, x < y, x, y),
        "where: number": (lambda b, a: torch.where(b, a, 0), some, x),
        "logical_not: bool": (torch.logical_not, some),
        "any: last axis": (lambda b: b.any(1), some),
        "all: last axis": (lambda b: b.all(1), some),
        "equal: all": (torch.equal, x, same),
        "allclose: all": (torch.allclose, x, same),
    }


def unaries(o):
    x, dy = o.matrix(), o.matrix()
    p = positive(x)
    aten = torch.ops.aten
    forward = {f.__name__: f for f in (
        F.silu, torch.sigmoid, torch.tanh, torch.relu, torch.exp, torch.neg, torch.abs, torch.sin,
        torch.cos, torch.tan, torch.erf, torch.expm1, F.softplus, F.leaky_relu, F.elu, F.mish,
        F.hardswish, torch.floor, torch.ceil, torch.round, torch.trunc, torch.sign)}  # fmt: skip
    forward |= {
        "gelu": F.gelu,
        "gelu tanh": lambda t: F.gelu(t, approximate="tanh"),
        "clamp": lambda t: t.clamp(-1, 1),
    }
    of_positive = (torch.log, torch.sqrt, torch.rsqrt, torch.reciprocal, torch.log1p)
    backward = {
        "gelu_backward": lambda a, dy: aten.gelu_backward(dy, a),
        "gelu_backward tanh": lambda a, dy: aten.gelu_backward(dy, a, approximate="tanh"),
        "silu_backward": lambda a, dy: aten.silu_backward(dy, a),
        "sigmoid_backward": lambda y, dy: aten.sigmoid_backward(dy, y),
        "tanh_backward": lambda y, dy: aten.tanh_backward(dy, y),
        "relu_backward": lambda a, dy: aten.threshold_backward(dy, a, 0),
        "abs_backward": lambda a, dy: dy * a.sgn(),
        "clamp_backward": lambda a, dy: torch.where((a >= -1) & (a <= 1), dy, 0),
        "tan_backward": lambda y, dy: dy * (1 + y * y),
        "erf_backward": lambda a, dy: dy * (1.1283791670955126 * torch.exp(-a * a)),
        "softplus_backward": lambda a, dy: aten.softplus_backward(dy, a, 1, 20),
        "leaky_relu_backward": lambda a, dy: aten.leaky_relu_backward(dy, a, 0.01, False),
        "elu_backward": lambda a, dy: aten.elu_backward(dy, 1, 1, 1, False, a),
        "mish_backward": lambda a, dy: aten.mish_backward(dy, a),
        "hardswish_backward": lambda a, dy: aten.hardswish_backward(dy, a),
    }
    backward_of_positive = {
        "sqrt_backward": lambda y, dy: dy / (2 * y),
        "rsqrt_backward": lambda y, dy: -0.5 * dy * y**3,
        "reciprocal_backward": lambda y, dy: -dy * (y * y),
    }
    cases = {f"{name}: contiguous": (f, x) for name, f in forward.items()}
    cases |= {f"{f.__name__}: contiguous": (f, p) for f in of_positive}
    cases |= {f"{name}: contiguous": (f, x, dy) for name, f in backward.items()}
    cases |= {f"{name}: contiguous": (f, p, dy) for name, f in backward_of_positive.items()}
    cases["gelu: transposed"] = (lambda t: F.gelu(t).contiguous(), x.t())
    cases["dropout: contiguous"] = (lambda t: F.dropout(t, 0.1), x)
    kept = torch.rand_like(x) > 0.1

    def relu_dropout_backward(a, dy, kept):
        return aten.threshold_backward(aten.native_dropout_backward(dy, kept, 1 / 0.9), a, 0)

    cases["relu, dropout backward: contiguous"] = (relu_dropout_backward, x, dy, kept)
    cases["relu, dropout: contiguous"] = (lambda t: F.dropout(F.relu(t), 0.1), x)
    return cases


def fills(o):
    shape = (o.rows, o.columns)
    return {
        "fill: contiguous": (lambda t: t.fill_(1.5), o.matrix()),
        "arange: contiguous": (lambda: torch.arange(o.rows * o.columns, device=o.device),),
        "linspace: contiguous": (lambda: torch.linspace(0, 1, o.rows * o.columns, **o.options),),
        "eye: contiguous": (lambda: torch.eye(*shape, **o.options),),
        "full: contiguous": (lambda: torch.full(shape, 1.5, **o.options),),
        "zeros: contiguous": (lambda: torch.zeros(shape, **o.options),),
        "rand: contiguous": (lambda: torch.rand(shape, **o.options),),
        "randn: contiguous": (lambda: torch.randn(shape, **o.options),),
        "randint: contiguous": (lambda: torch.randint(0, 100, shape, **o.options),),
        "uniform_: contiguous": (lambda t: t.uniform_(-1, 1), o.matrix()),
        "normal_: contiguous": (lambda t: t.normal_(0, 0.02), o.matrix()),
        "bernoulli: contiguous": (lambda: torch.empty(shape, **o.options).bernoulli_(0.3),),
    }
