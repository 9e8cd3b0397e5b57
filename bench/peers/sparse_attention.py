#!/usr/bin/env python3
"""Peers of bench_sparse_attention, on the problems that its --export wrote.

    bench_sparse_attention --device cuda --dtype bf16 --export problems.json
    python3 sparse_attention.py --problems problems.json --dtype bf16 --json peers.json

    flex   FlexAttention, compiled, with a block mask of the same pattern: what a user would take.
           Its blocks are of 128; smaller ones of the pattern are masked inside of them
    cudnn  cuDNN's attention through scaled_dot_product_attention, every score computed (the lower
           half where the pattern is causal): what sparsity has to beat
    flash  FlashAttention, every score computed likewise. Version 3 (flash_attn_interface) is taken
           before version 2 (flash_attn). Where neither is installed, the version that PyTorch
           brings is, and the record calls it "torch flash"
    flash4, cudnn_flex, cudnn_blocks
           FlashAttention 4 and cuDNN's own sparse forms: see listed_attention.py
    masked PyTorch's scaled_dot_product_attention with the pattern as a mask of elements, with the
           kernel that it takes: the peer on the CPU

Terms of scores that a cell names, softcap, alibi, bias and table, are FlexAttention's score_mod. Its
gradients of a bias and a table, "backward of all", are atomic sums. No peer knows the other options.

What skips blocks or masks them is compared with sums in float64 before it is timed.
Forward keeps what backward needs; times in one cell take turns.
"""

import argparse
import functools
import importlib
import json

import listed_attention
import measure
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

SAMPLES = 16
TERMS = {"softcap", "alibi", "bias", "table"}
OPTIONS = TERMS | {"sinks", "dropout", "mask", "ragged"}


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problems", required=True, help="file of --export")
    parser.add_argument("--dtype", choices=measure.DTYPES, default="bf16")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--peers", default="flex,cudnn,flash")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--json", help="writes the figures")
    parser.add_argument("--commit", default="unknown")
    arguments = parser.parse_args()
    arguments.peers = arguments.peers.split(",")
    return arguments


def bias_at(i, j):
    """As bench/sparse_attention_check.h has it."""
    return ((i * 7919 + j * 31) % 17 - 8) / 16


def table_at(d):
    return ((d * d + 5 * d) % 13 - 6) / 16


class Terms:
    """What is added to scores or caps them."""

    def __init__(self, cell, dtype, device):
        self.softcap, self.reach = cell.get("softcap", 0), cell.get("table", 0)
        self.slopes = self.bias = self.table = None
        if cell.get("alibi"):
            heads = torch.arange(1, cell["heads"] + 1, device=device)
            self.slopes = torch.exp2(-8.0 * heads / cell["heads"])
        if cell.get("bias"):
            at = torch.arange(cell["sequence"], device=device)
            self.bias = bias_at(at[:, None], at[None, :]).to(dtype).requires_grad_()
        if self.reach:
            at = torch.arange(-self.reach, self.reach + 1, device=device)
            self.table = table_at(at).float().requires_grad_()

    def learnt(self):
        return tuple(x for x in (self.bias, self.table) if x is not None)

    def apply(self, score, b, h, q, k):
        if self.softcap:
            score = self.softcap * torch.tanh(score / self.softcap)
        if self.bias is not None:
            score = score + self.bias[q, k]
        if self.table is not None:
            score = score + self.table[(k - q).clamp(-self.reach, self.reach) + self.reach]
        if self.slopes is not None:
            score = score - self.slopes[h] * (k - q).abs()
        return score


class Problem:
    def __init__(self, description, layout, dtype, device):
        cell = description["cell"]
        self.cell, self.causal = cell, description["causal"]
        shape = (cell["batch"], cell["heads"], cell["sequence"], cell["head_dim"])
        self.q, self.k, self.v = (
            torch.randn(shape, device=device, dtype=dtype, requires_grad=True) for _ in range(3)
        )
        self.dout = torch.randn(shape, device=device, dtype=dtype)
        self.terms = Terms(cell, dtype, device) if OPTIONS & cell.keys() else None
        self.block, blocks = layout["block"], layout["rows"]
        self.kept = torch.zeros(blocks, blocks, dtype=torch.bool)
        for row, (begin, end) in enumerate(zip(layout["row_offsets"], layout["row_offsets"][1:])):
            self.kept[row, layout["columns"][begin:end]] = True
        self.kept = self.kept.to(device)
        # Of one product over the kept blocks.
        area = len(layout["columns"]) * self.block**2
        self.flops = 2.0 * area * cell["head_dim"] * cell["batch"] * cell["heads"]

    def check(self, out):
        """Sampled rows of the last head against softmax in float64."""
        length, head_dim = self.q.shape[2:]
        rows = torch.arange(SAMPLES, device=out.device) * 7919 % length
        keys = torch.arange(length, device=out.device)
        q, k, v = (x[-1, -1].detach().double() for x in (self.q, self.k, self.v))
        sees = self.kept[rows // self.block][:, keys // self.block]
        if self.causal:
            sees = sees & (keys <= rows[:, None])
        scores = q[rows] @ k.t() * head_dim**-0.5
        if self.terms:
            scores = self.terms.apply(scores, -1, -1, rows[:, None], keys[None, :]).detach()
        scores = scores.masked_fill(~sees, float("-inf"))
        weights = scores.softmax(-1).nan_to_num()
        bound = {torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}.get(out.dtype, 2.0**-11)
        wrong = (out[-1, -1, rows].double() - weights @ v).abs() > 4 * bound * (
            weights @ v.abs() + 1e-2
        )
        if wrong.any():
            raise ArithmeticError(f"{int(wrong.sum())} of {wrong.numel()} entries are wrong")


def flex(problem, compiled):
    kept, block, causal = problem.kept, problem.block, problem.causal

    def visible(b, h, q, k):
        inside = kept[q // block, k // block]
        return inside & (q >= k) if causal else inside

    length = problem.q.shape[2]
    mask = create_block_mask(visible, None, None, length, length, device=problem.q.device)
    score_mod = problem.terms.apply if problem.terms else None
    return lambda: compiled(
        problem.q, problem.k, problem.v, score_mod=score_mod, block_mask=mask
    )


def dense(problem, backend):
    def forward():
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(
                problem.q, problem.k, problem.v, is_causal=problem.causal
            )

    return forward


def flash(problem, function):
    def forward():
        # [batch, sequence, heads, head_dim]; version 3 may give the sums of rows besides.
        q, k, v = (x.transpose(1, 2) for x in (problem.q, problem.k, problem.v))
        out = function(q, k, v, causal=problem.causal)
        return (out[0] if isinstance(out, tuple) else out).transpose(1, 2)

    return forward


def masked(problem):
    mask = problem.kept.repeat_interleave(problem.block, 0).repeat_interleave(problem.block, 1)
    if problem.causal:
        mask = mask.tril()
    return lambda: F.scaled_dot_product_attention(problem.q, problem.k, problem.v, attn_mask=mask)


def flash_peer():
    """FlashAttention by its name in the record, and what makes a problem's forward of it."""
    for package in ("flash_attn_interface", "flash_attn"):
        try:
            function = importlib.import_module(package).flash_attn_func
        except (ImportError, AttributeError):  # version 4 makes a package of that name without it
            continue
        return "flash", lambda problem: flash(problem, function)
    return "torch flash", lambda problem: dense(problem, SDPBackend.FLASH_ATTENTION)


def named_peers(names, on_gpu):
    """What makes a problem's forward of each peer, by the peer's name in the record."""
    compiled = torch.compile(flex_attention, dynamic=False) if on_gpu else flex_attention
    known = {
        "flex": ("flex", lambda problem: flex(problem, compiled)),
        "cudnn": ("cudnn", lambda problem: dense(problem, SDPBackend.CUDNN_ATTENTION)),
        "flash": flash_peer(),
        "masked": ("masked", masked),
        "flash4": ("flash 4", listed_attention.flash4),
        "cudnn_flex": ("cudnn flex", listed_attention.cudnn_flex),
        "cudnn_blocks": ("cudnn blocks", listed_attention.cudnn_blocks),
    }
    return dict(known[name] for name in names)


def main():
    arguments = parse_arguments()
    with open(arguments.problems) as file:
        exported = json.load(file)
    record = measure.Record("sparse_attention", arguments.dtype, arguments.commit, arguments.device)
    timer = measure.Timer(arguments.runs, device=arguments.device)
    peers = named_peers(arguments.peers, arguments.device == "cuda")
    for description in exported["problems"]:
        layout = exported["layouts"][description["layout"]]
        dtype = measure.DTYPES[arguments.dtype]
        problem = Problem(description, layout, dtype, arguments.device)
        works = []  # (peer, what, work, products over the kept blocks)
        for peer, make in peers.items():
            what = "forward"
            try:
                unknown = OPTIONS & problem.cell.keys() - (TERMS if peer == "flex" else set())
                if unknown:
                    raise NotImplementedError(f"{peer} is not told of {', '.join(sorted(unknown))}")
                forward = make(problem)
                out = forward()
                if peer not in ("cudnn", "flash", "torch flash"):  # these compute every score
                    problem.check(out)
                inputs = (problem.q, problem.k, problem.v)

                def backward(out=out, inputs=inputs):
                    torch.autograd.grad(out, inputs, problem.dout, retain_graph=True)

                works += [(peer, what, forward, 2)]
                what = "backward"
                backward()
                works += [(peer, what, backward, 5)]
                if problem.terms and problem.terms.learnt():
                    what = "backward of all"
                    every = functools.partial(backward, inputs=inputs + problem.terms.learnt())
                    every()
                    works.append((peer, what, every, 5))
            except Exception as error:  # a shape that the peer does not take, for example
                record.add_failure(problem.cell, what, peer, error)
        times = timer.interleave([work for _, _, work, _ in works])
        cell = problem.cell
        for (peer, what, _, products), seconds in zip(works, times):
            record.add(cell, what, peer, seconds, products * problem.flops)
            median = seconds[len(seconds) // 2]
            name = f"{cell['pattern']} block {cell['block']} density {cell['density']}"
            rate = 1e-12 * products * problem.flops / median
            print(f"{name} {what}: {peer} {1e6 * median:.0f} us, {rate:.0f} TF", flush=True)
        if arguments.json:  # what is measured so far outlives a time limit
            record.write(arguments.json)


if __name__ == "__main__":
    main()
