#!/usr/bin/env python3
"""The peer of bench_lstm: torch.nn.LSTM, on a GPU that is cuDNN.

Times the same shapes, forward (keeping what backward needs) and backward, and prints both beside
the figures of a record that `bench_lstm --json` wrote, where one is given. A record names shapes
and dtype; without one, give `--cases T:B:I:H:L,... --dtype`. `--json` writes the times, for
bench/compare.

    bench_lstm --device cuda --dtype bf16 --json bf16.json
    python3 lstm.py --record bf16.json f16.json
    python3 lstm.py --record f32.json --tf32        # torch's own default for cuDNN's LSTM

cuDNN's persistent kernel serves f16 only, and of that one layer in one direction with at most 1024
cells; measure f16 too before comparing anything with cuDNN.
"""

import argparse
import json

import measure
import torch


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--record", nargs="+", default=[], help="JSON files of bench_lstm")
    parser.add_argument("--cases", default="512:32:1024:1024:1")
    parser.add_argument("--dtype", choices=measure.DTYPES, default="f32")
    parser.add_argument("--device", choices=["cpu", "cuda"])
    parser.add_argument("--tf32", action="store_true", help="let f32 products run in TF32")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads; 0: what torch takes")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--json", help="writes the times")
    parser.add_argument("--commit", default="unknown")
    return parser.parse_args()


def read_cases(arguments):
    """[(cell, our seconds by pass)]"""
    if not arguments.record:
        names = ["steps", "batch", "input", "hidden", "layers"]
        for text in arguments.cases.split(","):
            cell = dict(zip(names, map(int, text.split(":"))))
            yield {**cell, "dtype": arguments.dtype}, {}
        return
    for path in arguments.record:
        with open(path) as file:
            figures = json.load(file)["figures"]
        cells = []
        for figure in figures:
            if figure["cell"] not in cells:
                cells.append(figure["cell"])
        for cell in cells:
            yield cell, {f["what"]: f for f in figures if f["cell"] == cell}


def main():
    arguments = parse_arguments()
    device = arguments.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    torch.backends.cudnn.allow_tf32 = arguments.tf32
    torch.backends.cuda.matmul.allow_tf32 = arguments.tf32
    torch.manual_seed(0)
    timer = measure.Timer(arguments.runs, device=device)
    record = measure.Record("lstm", arguments.dtype, arguments.commit, device)
    where = (
        torch.cuda.get_device_name() if device == "cuda" else f"{torch.get_num_threads()} threads"
    )
    print(f"torch {torch.__version__}, {where}, TF32 {'on' if arguments.tf32 else 'off'}")
    print(" steps batch input hidden layers dtype      pass  torch us/step    bs us/step   ratio")
    for cell, ours in read_cases(arguments):
        dtype = measure.DTYPES[cell["dtype"]]
        lstm = torch.nn.LSTM(cell["input"], cell["hidden"], cell["layers"]).to(device, dtype)
        x = torch.randn(cell["steps"], cell["batch"], cell["input"], device=device, dtype=dtype)
        x.requires_grad_()
        y = lstm(x)[0]
        dy = torch.randn_like(y)

        def forward():
            lstm(x)

        def backward():
            y.backward(dy, retain_graph=True)

        for name, seconds in zip(["forward", "backward"], timer.interleave([forward, backward])):
            steps = cell["steps"] * cell["layers"]
            peer = seconds[len(seconds) // 2] * 1e6 / steps
            figure = ours.get(name)
            work = {key: figure[key] for key in ("flops", "bytes")} if figure else {}
            record.add(cell, name, "torch", seconds, **work)
            mine = figure["us_per_step"] if figure else float("nan")
            print(
                f"{cell['steps']:6} {cell['batch']:5} {cell['input']:5} {cell['hidden']:6} "
                f"{cell['layers']:6} {cell['dtype']:>5} {name:>9} {peer:14.2f} {mine:13.2f} "
                f"{peer / mine:7.2f}"
            )
    if arguments.json:
        record.write(arguments.json)


if __name__ == "__main__":
    main()
