"""Selections, scans and orders in PyTorch, for plain.py.

A function gives the cases of a set: {name: (function, its operands ...)}.
"""

import torch
import torch.nn.functional as F


def selections(o):
    x, y = o.matrix(), o.matrix()
    cases = rows_by_number(o, x, y) | elements(o, x, y) | joints(o, x, y)
    cases |= scans(o, x, y) | orders(o, x)
    return cases | (rotations(o, x) if o.has_heads() else {})


def rows_by_number(o, x, y):
    some, across = o.indices(o.rows, o.rows), o.indices(o.columns, o.columns)
    return {
        "index_select: first axis": (lambda t, i: t.index_select(0, i), x, some),
        "index_select: last axis": (lambda t, i: t.index_select(1, i), x, across),
        "index_select_backward: first axis": (
            lambda d, i: torch.zeros_like(d).index_add_(0, i, d),
            *(y, some),
        ),
        "index_select_backward: last axis": (
            lambda d, i: torch.zeros_like(d).index_add_(1, i, d),
            *(y, across),
        ),
        "index_add: first axis": (lambda t, i, s: t.index_add(0, i, s), x, some, y),
        "index_add: few places": (
            lambda t, i, s: t.index_add(0, i, s),
            *(x[:8], o.indices(min(8, o.rows), o.rows), y),
        ),
        "index_copy: first axis": (lambda t, i, s: t.index_copy(0, i, s), x, some, y),
        "index: rows": (lambda t, i: t[i], x, some),
        "index_put: rows": (lambda t, i, s: t.index_put((i,), s), x, some, y),
        "index_put add: rows": (lambda t, i, s: t.index_put((i,), s, True), x, some, y),
        "one_hot: last axis": (
            lambda i: F.one_hot(i, o.columns).to(x.dtype),
            o.indices(o.columns, o.rows),
        ),
    }


def elements(o, x, y):
    places = o.indices(o.columns, o.rows, o.columns)
    return {
        "gather: last axis": (lambda t, i: t.gather(1, i), x, places),
        "gather_backward: last axis": (
            lambda d, i: torch.zeros_like(d).scatter_add_(1, i, d),
            *(y, places),
        ),
        "scatter: last axis": (lambda t, i, s: t.scatter(1, i, s), x, places, y),
        "scatter number: last axis": (lambda t, i: t.scatter(1, i, 1.5), x, places),
        "scatter_add: last axis": (lambda t, i, s: t.scatter_add(1, i, s), x, places, y),
        "sort_backward: last axis": (
            lambda d, i: torch.zeros_like(d).scatter_(1, i, d),
            *(y, x.argsort(dim=1)),
        ),
        "take: all": (torch.take, x, o.indices(o.rows * o.columns, o.rows, o.columns)),
        "bincount: all": (torch.bincount, places.view(-1)),
    }


def joints(o, x, y):
    def slice_backward(d):
        dx = d.new_zeros(o.rows, 2 * o.columns)
        dx[:, ::2] = d
        return dx

    return {
        "concat: first axis": (lambda a, b: torch.cat((a, b), 0), x, y),
        "concat: last axis": (lambda a, b: torch.cat((a, b), 1), x, y),
        "stack: first axis": (lambda a, b: torch.stack((a, b), 0), x, y),
        "stack: last axis": (lambda a, b: torch.stack((a, b), 2), x, y),
        "split_backward: last axis": (lambda a, b: torch.cat((a, b), 1), x, y),
        "slice_backward: left half": (lambda d: F.pad(d, (0, o.columns)), x),
        "slice_backward: every second": (slice_backward, x),
    }


def scans(o, x, y):
    near = 1 + 0.1 * x
    return {
        "cumsum: last axis": (lambda t: t.cumsum(1), x),
        "cumsum: first axis": (lambda t: t.cumsum(0), x),
        "cumsum reverse: last axis": (lambda t: t.flip(1).cumsum(1).flip(1), x),
        "cumprod: last axis": (lambda t: t.cumprod(1), near),
        "cumprod_backward: last axis": (
            lambda t, y, d: (y * d).flip(1).cumsum(1).flip(1) / t,
            *(near, near.cumprod(1), y),
        ),
        "searchsorted: last axis": (torch.searchsorted, x.sort(1)[0], y),
    }


def orders(o, x):
    k = min(16, o.columns)
    return {
        "sort: last axis": (lambda t: t.sort(dim=1, stable=True), x),
        "argsort: last axis": (lambda t: t.argsort(dim=1, stable=True), x),
        "topk 16: last axis": (lambda t: t.topk(k, 1), x),
        "kthvalue: last axis": (lambda t: t.kthvalue((o.columns + 1) // 2, 1), x),
        "unique: all": (lambda t: t.unique(return_inverse=True, return_counts=True), x),
        "nonzero: coordinates": (torch.nonzero, x > 0),
        "nonzero: half of all": (lambda m: m.view(-1).nonzero(), x > 0),
        "masked_select: half of all": (torch.masked_select, x, x > 0),
        "multinomial 16: last axis": (lambda w: w.multinomial(k), x.abs()),
        "multinomial 16 replaced: last axis": (lambda w: w.multinomial(k, True), x.abs()),
    }


def rotations(o, x):
    half = 32
    rates = 10000 ** (-torch.arange(half, device=o.device) / half)
    angles = torch.outer(torch.arange(o.rows // 4, device=o.device), rates)
    cos, sin = (f(torch.cat((angles, angles), 1)).to(x.dtype) for f in (torch.cos, torch.sin))

    def rope(v, cos, sin):
        turned = torch.cat((-v[..., half:], v[..., :half]), -1)
        return v * cos + turned * sin

    return {
        "rope: bshd": (rope, o.heads(x).permute(0, 2, 1, 3), cos, sin),
        "rope_backward: bshd": (rope, o.heads(x).permute(0, 2, 1, 3), cos, -sin),
    }
