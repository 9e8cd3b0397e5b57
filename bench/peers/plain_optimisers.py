"""Optimisers in PyTorch, for plain.py.

A function gives the cases of a set: {name: (function, its operands ...)}.
"""

import torch
import torch.nn.functional as F


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

    def add_scaled(values, gradients):
        torch._foreach_mul_(values, 0.9)
        torch._foreach_add_(values, gradients, alpha=0.1)

    cases = {f"{name}: 500 tensors": (kind.step,) for name, kind in kinds.items()}
    cases["muon: 250 matrices"] = (muon.step,)
    cases["ema: 500 tensors"] = (lambda: torch._foreach_lerp_(averages, values, 0.01),)
    cases["axpby: 500 tensors"] = (lambda: add_scaled(values, gradients),)
    cases["grad_norm: 500 tensors"] = (lambda: torch.nn.utils.get_total_norm(gradients),)
    cases["clip_gradients: 500 tensors"] = (
        lambda: torch.nn.utils.clip_grad_norm_(parameters, 0.5),
    )
    return cases
