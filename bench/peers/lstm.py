#!/usr/bin/env python3
"""The peer of bench_lstm: torch.nn.LSTM, which on a GPU is cuDNN.

    bench_lstm --device cuda --dtype bf16 --json own.json
    python3 lstm.py --record own.json --json peers.json

Times the shapes of the record, forward (keeping what backward needs) and backward, and prints how
many times as long as ours they take.

Products of f32 are f32 or, where the record says tf32, TF32, which is what torch lets cuDNN's LSTM
do if not told.

cuDNN's persistent kernel serves f16 only, and of that one layer in one direction with at most 1024
cells; measure f16 too before comparing anything with cuDNN.
"""

import measure
import torch


def works_of(cell, device):
    """Forward and backward of one shape."""
    tf32 = cell["dtype"] == "tf32"
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32
    dtype = torch.float32 if tf32 else measure.DTYPES[cell["dtype"]]
    lstm = torch.nn.LSTM(
        cell["input"], cell["hidden"], cell["layers"], bidirectional=cell["directions"] == 2
    ).to(device, dtype)
    lstm.flatten_parameters()
    x = torch.randn(cell["steps"], cell["batch"], cell["input"], device=device, dtype=dtype)
    x.requires_grad_()
    y = lstm(x)[0]
    dy = torch.randn_like(y)
    return [lambda: lstm(x), lambda: y.backward(dy, retain_graph=True)]


def main():
    arguments = measure.parse_arguments(__doc__, "bench_lstm")
    device = arguments.device
    dtype, cells = measure.read_figures(arguments.record)
    timer = measure.Timer(arguments.runs, device=device)
    record = measure.Record("lstm", dtype, arguments.commit, device)
    print(f"torch {torch.__version__} on {device}; us a step and layer")
    print(" steps batch input hidden layers directions dtype      pass     torch        bs   times")
    for cell, mine in cells:
        times = timer.interleave(works_of(cell, device))
        for what, seconds in zip(("forward", "backward"), times):
            flops = mine["forward"]["flops"] * (1 + (what == "backward"))
            record.add(cell, what, "torch", seconds, flops)
            median, ours = seconds[len(seconds) // 2], mine[what]["seconds"]
            step = 1e6 / (cell["steps"] * cell["layers"])
            print(
                f"{cell['steps']:6} {cell['batch']:5} {cell['input']:5} {cell['hidden']:6} "
                f"{cell['layers']:6} {cell['directions']:10} {cell['dtype']:>5} {what:>9} "
                f"{median * step:9.2f} {ours * step:9.2f} {median / ours:7.2f}",
                flush=True,
            )
    if arguments.json:
        record.write(arguments.json)


if __name__ == "__main__":
    main()
