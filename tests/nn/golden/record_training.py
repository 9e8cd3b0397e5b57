#!/usr/bin/env python3
"""Records training.txt: twenty training steps of a tiny `sparse_transformer` in PyTorch.

The C++ test trains the same model from the same weights on the same bytes and compares every loss,
every gradient norm and the final weights. Nothing is shipped but this text: weights and data come
from integer formulas that both languages evaluate bit for bit (`initial_values`, `stream_byte`).

    pip install torch numpy && python3 record_training.py training.txt

Everything is computed twice, in float32 and in float64, from the same float32 weights. The float64
run is recorded too: a C++ run in double compares with it, and its distance from the float32 run is
what rounding alone does to the numbers. The tolerances in the header of the file come from there.
"""

import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY = 256
WIDTH = 64
LAYERS = 2
HEADS = 2
CONTEXT = 64
BLOCK = 16
LOCAL_BLOCKS = 2
GLOBAL_BLOCKS = 1
GLOBAL_PATTERNS = 2

BATCH = 4
STEPS = 20
WARMUP = 5
LEARNING_RATE = 1e-3
MIN_LEARNING_RATE = 0.1 * LEARNING_RATE
BETAS = (0.9, 0.95)
EPSILON = 1e-8
WEIGHT_DECAY = 0.1
CLIP_NORM = 1.0

TOLERANCE_FACTOR = 20


# ---- the pattern ---------------------------------------------------------------------------------


def fixed_layout(heads, blocks, local_blocks, global_blocks, patterns):
    """DeepSpeed's 'fixed' pattern, unidirectional: layout[h][i][j], row i sees column j.

    Windows of `local_blocks` blocks, lower triangular, and in each window `global_blocks` columns
    that all later rows see. Head h takes the (h mod patterns)-th group of columns, counted from the
    end of the window. A last window that is not full takes the same group, moved left where it
    would stick out of the matrix.
    """
    layout = torch.zeros(heads, blocks, blocks, dtype=torch.bool)
    for h in range(heads):
        for i in range(blocks):
            for j in range(i + 1):
                layout[h, i, j] = i // local_blocks == j // local_blocks
        first = local_blocks - (1 + h % patterns) * global_blocks
        full = blocks - blocks % local_blocks
        starts = list(range(first, full, local_blocks))
        if full < blocks:
            starts.append(min(full + first, blocks - global_blocks))
        for start in starts:
            for j in range(start, start + global_blocks):
                layout[h, j:, j] = True
    return layout


# ---- the model -----------------------------------------------------------------------------------


class Attention(nn.Module):
    """Block-sparse causal self-attention, by dense scores with -inf outside the pattern."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        layout = fixed_layout(HEADS, CONTEXT // BLOCK, LOCAL_BLOCKS, GLOBAL_BLOCKS, GLOBAL_PATTERNS)
        visible = layout.repeat_interleave(BLOCK, dim=1).repeat_interleave(BLOCK, dim=2)
        causal = torch.ones(CONTEXT, CONTEXT, dtype=torch.bool).tril()
        self.register_buffer("hidden", ~(visible & causal), persistent=False)

    def forward(self, x):
        batch, context, width = x.shape
        head_dim = width // HEADS
        qkv = self.qkv(x).view(batch, context, 3, HEADS, head_dim).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]  # each [batch, heads, context, head_dim]
        scores = q @ k.transpose(-2, -1) * head_dim**-0.5
        probabilities = scores.masked_fill(self.hidden, -math.inf).softmax(dim=-1)
        return self.out((probabilities @ v).transpose(1, 2).reshape(batch, context, width))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH, eps=1e-5)
        self.attention = Attention()
        self.norm2 = nn.LayerNorm(WIDTH, eps=1e-5)
        self.fc1 = nn.Linear(WIDTH, 4 * WIDTH)
        self.fc2 = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, h):
        h = h + self.attention(self.norm1(h))
        return h + self.fc2(F.gelu(self.fc1(self.norm2(h)), approximate="tanh"))


class SparseTransformer(nn.Module):
    """The order of the members numbers the parameters, for `initial_values`."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH, eps=1e-5)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        h = self.embedding(tokens) + self.position.weight
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


# ---- weights and data by formula -----------------------------------------------------------------


def initial_values(number, count, scale):
    """`count` numbers in [-scale, scale) of parameter `number`: a hash of the index, in double."""
    values = []
    for i in range(count):
        u = ((i + 1) * 2654435761 + (number + 1) * 40503 * 65537) % 2**32
        u ^= u >> 16
        u = u * 2246822519 % 2**32
        u ^= u >> 13
        values.append((u / 2**32 - 0.5) * 2 * scale)
    return torch.tensor(values, dtype=torch.float64)


def initialise(model):
    """Fills the weights in double, rounds them once to float and stores them in the model type."""
    for number, (name, parameter) in enumerate(model.named_parameters()):
        is_norm_weight = "norm" in name and name.endswith("weight")
        if is_norm_weight:
            scale = 0.1
        elif name.endswith("bias") or name in ("embedding.weight", "position.weight"):
            scale = 0.02
        else:
            scale = 1 / math.sqrt(parameter.shape[-1])
        values = initial_values(number, parameter.numel(), scale)
        if is_norm_weight:
            values = 1 + values
        with torch.no_grad():
            parameter.copy_(values.float().view(parameter.shape))


def stream_byte(t):
    return (t * t * 31 + 7 * t + (t >> 3)) % 97 + 32


def batch_of(step):
    """Tokens and targets [BATCH, CONTEXT]; row j starts at byte (step * BATCH + j) * CONTEXT."""
    rows = []
    for j in range(BATCH):
        offset = (step * BATCH + j) * CONTEXT
        rows.append([stream_byte(t) for t in range(offset, offset + CONTEXT + 1)])
    rows = torch.tensor(rows)
    return rows[:, :-1], rows[:, 1:]


# ---- training ------------------------------------------------------------------------------------


def learning_rate(step):
    """Linear warm-up, then half a cosine that would reach the minimum at step STEPS."""
    if step < WARMUP:
        return LEARNING_RATE * (step + 1) / WARMUP
    progress = (step - WARMUP) / (STEPS - WARMUP)
    return MIN_LEARNING_RATE + 0.5 * (LEARNING_RATE - MIN_LEARNING_RATE) * (
        1 + math.cos(math.pi * progress)
    )


def train(dtype, shake=0.0):
    """The trained model and, per step, (loss, gradient norm before clipping, learning rate).

    `shake` multiplies every weight by 1 +- shake before the first step, to see how the run responds
    to rounding.
    """
    model = SparseTransformer().to(dtype)
    initialise(model)
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            signs = (
                initial_values(number + 1000, parameter.numel(), 1.0).sign().view(parameter.shape)
            )
            parameter.mul_((1 + shake * signs).to(dtype))
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [
        {"params": decayed, "weight_decay": WEIGHT_DECAY},
        {"params": others, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, betas=BETAS, eps=EPSILON)

    records = []
    for step in range(STEPS):
        tokens, targets = batch_of(step)
        logits = model(tokens)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        optimizer.step()
        records.append((loss.item(), norm.item(), learning_rate(step)))
    return model, records


# ---- the record ----------------------------------------------------------------------------------


def pieces(model):
    """(name, tensor) of every parameter; qkv.bias comes as its three thirds q, k and v.

    The softmax does not see the bias of the keys: it adds the same number to every score of a row.
    Its gradient is zero but for rounding, and Adam turns that noise into steps. The bias of the
    keys is therefore different in every implementation and changes nothing; it stands apart to
    leave the others comparable.
    """
    for name, parameter in model.named_parameters():
        parameter = parameter.detach()
        if name.endswith("qkv.bias"):
            for part, third in zip("qkv", parameter.chunk(3)):
                yield f"{name}.{part}", third
        else:
            yield name, parameter


def summary(tensor):
    flat = tensor.double().flatten()
    return flat.sum().item(), flat.norm().item(), flat[:4].tolist()


def line(*fields):
    return " ".join(f"{f:.17g}" if isinstance(f, float) else str(f) for f in fields)


def weight_lines(tag, model):
    for name, tensor in pieces(model):
        total, norm, first = summary(tensor)
        yield line(tag, name, tensor.numel(), total, norm, *first)


HEADER = """\
# Twenty training steps of a tiny sparse_transformer; recorded by record_training.py, torch {torch}.
#
# Each line that is not a comment starts with its kind:
#   layout    head row, then one 0 or 1 a block column
#   initial   name count sum l2 v0 v1 v2 v3          before step 0; float32 values, sums in double
#   step      step loss gradient_norm learning_rate  the float32 run; the norm before clipping
#   step64    step loss gradient_norm learning_rate  the float64 run, from the same weights
#   weights   name count sum l2 v0 v1 v2 v3          the float32 run after the last step
#   weights64 name count sum l2 v0 v1 v2 v3          the float64 run after the last step
# qkv.bias is given as its thirds, .q .k .v. Do not compare the trained .k: its gradient is zero but
# for rounding, Adam makes steps of that noise, and no output depends on it.
#
# What rounding does, |float32 run - float64 run|, largest over steps or over names but qkv.bias.k:
{deviations}
# Tolerances, {factor} times that, rounded up to one digit:
{tolerances}
#   learning rate (relative): 1e-06, which allows for a schedule computed in float
#
# A C++ run in double compares with step64 and weights64 (initial weights rounded to float first).
# Repeating the float64 run from weights that are off by a relative 1e-15 moves these numbers by at
# most {shaken:.0e}; tolerance for all of them: 1e-11.
"""


def round_up(x):
    """The next number of one significant digit: 3.2e-5 -> 4e-5."""
    unit = 10.0 ** math.floor(math.log10(x))
    return math.ceil(x / unit) * unit


def deviations(model, records, model64, records64):
    """Name -> largest deviation between two runs."""
    found = {
        "loss (absolute)": max(abs(a[0] - b[0]) for a, b in zip(records, records64)),
        "gradient norm (relative)": max(
            abs(a[1] - b[1]) / b[1] for a, b in zip(records, records64)
        ),
        "single weight (absolute)": 0.0,
        "weight sum (absolute, over sqrt(count))": 0.0,
        "weight l2 (relative)": 0.0,
    }
    for (name, a), (_, b) in zip(pieces(model), pieces(model64)):
        if name.endswith("qkv.bias.k"):
            continue
        a, b = a.double(), b.double()
        moved = {
            "single weight (absolute)": (a - b).abs().max().item(),
            "weight sum (absolute, over sqrt(count))": abs((a - b).sum().item())
            / math.sqrt(a.numel()),
            "weight l2 (relative)": abs(a.norm() - b.norm()).item() / b.norm().item(),
        }
        for key, value in moved.items():
            found[key] = max(found[key], value)
    return found


def main():
    torch.set_num_threads(1)
    path = sys.argv[1] if len(sys.argv) > 1 else "training.txt"

    untrained = SparseTransformer()
    initialise(untrained)
    model, records = train(torch.float32)
    model64, records64 = train(torch.float64)
    shaken = deviations(*train(torch.float64, shake=1e-15), model64, records64)

    found = deviations(model, records, model64, records64)
    out = HEADER.format(
        torch=torch.__version__,
        deviations="\n".join(f"#   {k}: {v:.2e}" for k, v in found.items()),
        tolerances="\n".join(
            f"#   {k}: {round_up(TOLERANCE_FACTOR * v):.0e}" for k, v in found.items()
        ),
        factor=TOLERANCE_FACTOR,
        shaken=max(shaken.values()),
    )
    lines = []
    for h, rows in enumerate(
        fixed_layout(HEADS, CONTEXT // BLOCK, LOCAL_BLOCKS, GLOBAL_BLOCKS, GLOBAL_PATTERNS)
    ):
        for i, row in enumerate(rows):
            lines.append(line("layout", h, i, *row.int().tolist()))
    lines += weight_lines("initial", untrained)
    lines += [line("step", i, *record) for i, record in enumerate(records)]
    lines += [line("step64", i, *record) for i, record in enumerate(records64)]
    lines += weight_lines("weights", model)
    lines += weight_lines("weights64", model64)
    with open(path, "w") as file:
        file.write(out + "\n".join(lines) + "\n")
    print(out)
    print(
        "per-step |loss f32 - f64|:",
        " ".join(f"{abs(a[0] - b[0]):.1e}" for a, b in zip(records, records64)),
    )
    print(
        "per-step |norm f32 - f64|/norm:",
        " ".join(f"{abs(a[1] - b[1]) / b[1]:.1e}" for a, b in zip(records, records64)),
    )
    for (name, a), (_, b) in zip(pieces(model), pieces(model64)):
        print(f"{name:36s} max |f32 - f64| {(a.double() - b.double()).abs().max().item():.2e}")


if __name__ == "__main__":
    main()
