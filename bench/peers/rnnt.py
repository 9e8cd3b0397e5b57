#!/usr/bin/env python3
"""The peer of bench_rnnt: the same LSTM transducer in PyTorch, as a user would write it.

    bench_rnnt --device cuda --dtype bf16 --json own.json
    python3 rnnt.py --record own.json --json peers.json

torch.nn.LSTM (cuDNN), the joint with its result stored, torchaudio.functional.rnnt_loss, clipping,
fused AdamW; weights and activations of the record's dtype. torchaudio takes logits of f32 and f16:
those of bf16 are converted. `torch tf32` lets products of f32 run in TF32.
"""

import measure
import torch
from torch import nn

PRE_LAYERS, POST_LAYERS, PREDICTION_LAYERS, STACK, FEATURES = 2, 3, 2, 2, 240
DROPOUTS = {"encoder": 0.1, "prediction": 0.3, "joint": 0.3}


class Transducer(nn.Module):
    """nn/rnnt.h, with the batch in the middle as nn.LSTM likes it best."""

    def __init__(self, cell):
        super().__init__()
        drop = {name: p if cell["dropout"] else 0.0 for name, p in DROPOUTS.items()}
        encoder, prediction, joint = cell["encoder"], cell["prediction"], cell["joint"]
        self.pre_rnn = nn.LSTM(FEATURES, encoder, PRE_LAYERS, dropout=drop["encoder"])
        self.post_rnn = nn.LSTM(STACK * encoder, encoder, POST_LAYERS, dropout=drop["encoder"])
        self.joint_enc = nn.Linear(encoder, joint)
        self.embedding = nn.Embedding(cell["classes"] - 1, prediction)
        self.prediction_rnn = nn.LSTM(
            prediction, prediction, PREDICTION_LAYERS, dropout=drop["prediction"]
        )
        self.joint_pred = nn.Linear(prediction, joint)
        self.joint_net = nn.Sequential(
            nn.ReLU(), nn.Dropout(drop["joint"]), nn.Linear(joint, cell["classes"])
        )

    def forward(self, features, tokens):
        x = self.pre_rnn(features)[0]  # frames a multiple of STACK
        frames, batch, width = x.shape
        x = x.view(frames // STACK, STACK, batch, width).transpose(1, 2)
        x = self.post_rnn(x.reshape(frames // STACK, batch, STACK * width))[0]
        f = self.joint_enc(x).transpose(0, 1)
        y = nn.functional.pad(self.embedding(tokens.T), (0, 0, 0, 0, 1, 0))
        g = self.joint_pred(self.prediction_rnn(y)[0]).transpose(0, 1)
        return self.joint_net(f[:, :, None] + g[:, None])


def works_of(cell, device):
    """Forward, and a training step."""
    from torchaudio.functional import rnnt_loss

    dtype = measure.DTYPES[cell["dtype"]]
    batch, frames, count, classes = (cell[k] for k in ("batch", "frames", "tokens", "classes"))
    model = Transducer(cell).to(device, dtype)
    for rnn in (model.pre_rnn, model.post_rnn, model.prediction_rnn):
        rnn.flatten_parameters()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
    features = torch.randn(frames, batch, FEATURES, device=device, dtype=dtype)
    tokens = torch.randint(0, classes - 1, (batch, count), device=device)
    targets = tokens.int()
    ints = {"dtype": torch.int32, "device": device}
    lengths = (torch.full((batch,), frames // STACK, **ints), torch.full((batch,), count, **ints))
    taken = dtype in (torch.float32, torch.float16)

    def loss():
        logits = model(features, tokens)
        return rnnt_loss(logits if taken else logits.float(), targets, *lengths)

    def forward():
        with torch.no_grad():
            loss()

    def step():
        optimizer.zero_grad()
        loss().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return [forward, step]


def main():
    arguments = measure.parse_arguments(__doc__, "bench_rnnt")
    device = arguments.device
    dtype, cells = measure.read_figures(arguments.record)
    timer = measure.Timer(arguments.runs, device=device)
    record = measure.Record("rnnt", dtype, arguments.commit, device)
    for cell, mine in cells:
        tf32_too = cell["dtype"] == "f32" and device == "cuda"
        for tf32 in (False, True) if tf32_too else (False,):
            torch.backends.cudnn.allow_tf32 = tf32
            torch.backends.cuda.matmul.allow_tf32 = tf32
            by = "torch tf32" if tf32 else "torch"
            for what, seconds in zip(("forward", "step"), timer.interleave(works_of(cell, device))):
                record.add(cell, what, by, seconds, mine[what]["flops"])
                median = seconds[len(seconds) // 2]
                print(
                    f"{cell['dtype']} {what:8} {by:10} {1e3 * median:9.2f} ms, "
                    f"{median / mine[what]['seconds']:.2f} times as long as ours",
                    flush=True,
                )
    if arguments.json:
        record.write(arguments.json)


if __name__ == "__main__":
    main()
