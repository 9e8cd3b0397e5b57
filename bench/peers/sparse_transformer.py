#!/usr/bin/env python3
"""The peer of examples/sparse_transformer: the same model in PyTorch, as a user would write it.

Prints the tokens per second of a full training step: forward, loss, backward, clipping, AdamW.

    python3 sparse_transformer.py --threads 2 --attention sdpa
    python3 sparse_transformer.py --device cuda --dtype bf16 --attention flex --compile

Attention, all with the block-sparse mask except `dense`:
    sdpa    F.scaled_dot_product_attention with a boolean mask: computes every score
    dense   the same with is_causal=True: another model, the speed of plain causal attention
    matmul  the textbook: scores, masked_fill, softmax, product
    flex    FlexAttention with a block mask, compiled: skips masked blocks (training needs CUDA)
Types:
    f32     float32 throughout; with --tf32 on CUDA its products run in TF32
    bf16    weights, activations and optimiser state in bfloat16
    amp     float32 weights, bfloat16 autocast
"""

import argparse
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    model = parser.add_argument_group("model")
    model.add_argument("--width", "--d", type=int, default=256)
    model.add_argument("--layers", type=int, default=4)
    model.add_argument("--heads", type=int, default=4)
    model.add_argument("--context", type=int, default=512)
    pattern = parser.add_argument_group("pattern")
    pattern.add_argument("--block", type=int, default=32)
    pattern.add_argument("--local-blocks", type=int, default=4)
    pattern.add_argument("--global-blocks", type=int, default=1)
    pattern.add_argument("--global-patterns", type=int, default=1)
    run = parser.add_argument_group("run")
    run.add_argument("--batch", type=int, default=8)
    run.add_argument("--attention", choices=["sdpa", "dense", "matmul", "flex"], default="sdpa")
    run.add_argument("--flex-block", type=int, default=128, help="BLOCK_SIZE of flex's block mask")
    run.add_argument("--compile", action="store_true", help="torch.compile the model and its loss")
    run.add_argument("--compile-mode", default="default")
    run.add_argument("--dtype", choices=["f32", "bf16", "amp"], default="f32")
    run.add_argument("--tf32", action="store_true")
    run.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    run.add_argument("--threads", type=int, default=0, help="CPU threads; 0: what torch takes")
    run.add_argument("--steps", type=int, default=20, help="measured steps")
    run.add_argument("--warmup", type=int, default=5, help="steps before those")
    run.add_argument("--repeat", type=int, default=1, help="the best median counts")
    run.add_argument("--matmul-rate", type=int, metavar="N", help="only time an N^3 product")
    return parser.parse_args()


# ---- the pattern ---------------------------------------------------------------------------------


def fixed_layout(heads, blocks, local_blocks, global_blocks, patterns):
    """DeepSpeed's 'fixed' pattern, unidirectional: layout[h][i][j], row i sees column j."""
    layout = torch.zeros(heads, blocks, blocks, dtype=torch.bool)
    for h in range(heads):
        for i in range(blocks):
            window = i - i % local_blocks
            layout[h, i, window : i + 1] = True
        first = local_blocks - (1 + h % patterns) * global_blocks
        full = blocks - blocks % local_blocks
        starts = list(range(first, full, local_blocks))
        if full < blocks:
            starts.append(min(full + first, blocks - global_blocks))
        for start in starts:
            for j in range(start, start + global_blocks):
                layout[h, j:, j] = True
    return layout


class Pattern:
    """The pattern in the form each kind of attention wants; made once, shared by all layers."""

    def __init__(self, args, device):
        blocks = args.context // args.block
        heads = args.heads if args.global_patterns > 1 else 1  # 1: the same for every head
        layout = fixed_layout(
            heads, blocks, args.local_blocks, args.global_blocks, args.global_patterns
        )
        self.kept = layout.sum().item() / layout.numel()
        layout = layout.to(device)

        causal = torch.ones(args.context, args.context, dtype=torch.bool, device=device).tril()
        visible = layout.repeat_interleave(args.block, dim=1).repeat_interleave(args.block, dim=2)
        self.mask = (visible & causal)[None]  # [1, heads or 1, context, context]
        self.flex_mask = None
        if args.attention == "flex":
            from torch.nn.attention.flex_attention import create_block_mask

            block = args.block

            def visible_at(b, h, q, k):
                return layout[h % heads, q // block, k // block] & (q >= k)

            self.flex_mask = create_block_mask(
                visible_at,
                B=None,
                H=heads if heads > 1 else None,
                Q_LEN=args.context,
                KV_LEN=args.context,
                device=device,
                BLOCK_SIZE=args.flex_block,
            )


def attention_function(args, pattern):
    """(q, k, v) -> output, all [batch, heads, context, head_dim]."""
    if args.attention == "dense":
        return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)
    if args.attention == "sdpa":
        return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=pattern.mask)
    if args.attention == "flex":
        from torch.nn.attention.flex_attention import flex_attention

        # Inside a compiled model it is compiled with the rest.
        flex = flex_attention if args.compile else torch.compile(flex_attention, dynamic=False)
        return lambda q, k, v: flex(q, k, v, block_mask=pattern.flex_mask)

    hidden = ~pattern.mask

    def matmul(q, k, v):
        scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
        return scores.masked_fill(hidden, float("-inf")).softmax(dim=-1) @ v

    return matmul


# ---- the model -----------------------------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self, width, heads, attend):
        super().__init__()
        self.heads = heads
        self.attend = attend
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        return self.out(self.attend(q, k, v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width, heads, attend):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads, attend)
        self.norm2 = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, h):
        h = h + self.attention(self.norm1(h))
        return h + self.fc2(F.gelu(self.fc1(self.norm2(h)), approximate="tanh"))


class SparseTransformer(nn.Module):
    """Returns the loss itself, so that torch.compile sees it too."""

    def __init__(self, args, attend, vocabulary=256):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, args.width)
        self.position = nn.Embedding(args.context, args.width)
        self.blocks = nn.ModuleList(
            Block(args.width, args.heads, attend) for _ in range(args.layers)
        )
        self.norm = nn.LayerNorm(args.width)
        self.head = nn.Linear(args.width, vocabulary, bias=False)
        for module in (self.embedding, self.position):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens, targets):
        h = self.embedding(tokens) + self.position.weight
        for block in self.blocks:
            h = block(h)
        logits = self.head(self.norm(h))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def make_optimizer(model):
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), eps=1e-8, fused=True)


# ---- measuring -----------------------------------------------------------------------------------


class Stopwatch:
    """Times of consecutive steps; on CUDA by events, so that the host may run ahead."""

    def __init__(self, device):
        self.cuda = device == "cuda"
        self.marks = []

    def mark(self):
        if self.cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self.marks.append(event)
        else:
            self.marks.append(time.perf_counter())

    def seconds(self):
        pairs = list(zip(self.marks, self.marks[1:], strict=False))
        if self.cuda:
            torch.cuda.synchronize()
            return [a.elapsed_time(b) * 1e-3 for a, b in pairs]
        return [b - a for a, b in pairs]


def measure(args, step):
    """Seconds of each measured step, and the last loss."""
    for _ in range(args.warmup):
        step()
    if args.device == "cuda":
        torch.cuda.synchronize()
    watch = Stopwatch(args.device)
    watch.mark()
    for _ in range(args.steps):
        loss = step()
        watch.mark()
    return watch.seconds(), loss.item()


def matmul_rate(args):
    dtype = torch.float32 if args.dtype == "f32" else torch.bfloat16
    a = torch.randn(args.matmul_rate, args.matmul_rate, device=args.device).to(dtype)
    b = torch.randn_like(a)
    seconds = min(min(measure(args, lambda: (a @ b)[0, 0])[0]) for _ in range(args.repeat))
    rate = 2 * args.matmul_rate**3 / seconds * 1e-9
    print(f"matmul {args.matmul_rate}^3 {args.dtype} {args.device}: {rate:.1f} GFLOP/s")


def main():
    args = parse_arguments()
    if args.threads:
        torch.set_num_threads(args.threads)
    if args.tf32:
        torch.set_float32_matmul_precision("high")
    if args.matmul_rate:
        return matmul_rate(args)

    torch.manual_seed(1)
    pattern = Pattern(args, args.device)
    model = SparseTransformer(args, attention_function(args, pattern)).to(args.device)
    if args.dtype == "bf16":
        model = model.bfloat16()
    optimizer = make_optimizer(model)
    parameters = list(model.parameters())
    loss_of = torch.compile(model, mode=args.compile_mode) if args.compile else model
    data = torch.randint(32, 129, (args.batch, args.context + 1), device=args.device)
    tokens, targets = data[:, :-1].contiguous(), data[:, 1:].contiguous()

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(args.device, torch.bfloat16, enabled=args.dtype == "amp"):
            loss = loss_of(tokens, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        return loss.detach()

    first = step().item()
    medians, fastest = [], float("inf")
    for _ in range(args.repeat):
        times, last = measure(args, step)
        medians.append(statistics.median(times))
        fastest = min(fastest, *times)
    seconds = min(medians)
    name = args.attention + (" compiled" if args.compile else "")
    threads = f"{torch.get_num_threads()} threads"
    where = torch.cuda.get_device_name() if args.device == "cuda" else threads
    print(
        f"{name:16s} {args.dtype:4s} {where} torch {torch.__version__}"
        f" | width {args.width} layers {args.layers} heads {args.heads} context {args.context}"
        f" batch {args.batch} block {args.block}, {pattern.kept:.0%} of the blocks kept"
        f" | {seconds * 1e3:.3f} ms a step, {args.batch * args.context / seconds:.0f} tokens/s"
        f" | fastest step {fastest * 1e3:.3f} ms, worst median {max(medians) * 1e3:.3f} ms"
        f" | loss {first:.4f} -> {last:.4f}"
    )


if __name__ == "__main__":
    main()
