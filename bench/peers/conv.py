#!/usr/bin/env python3
"""The peer of bench_conv: torch's convolution (oneDNN, cuDNN) of channels-last images.

    bench_conv --device cuda --dtype bf16 --json own.json
    python3 conv.py --record own.json --json peers.json

Times the cells of the record, forward and both gradients, and prints how many times as long as ours
they take; then the sum of a step of training, in which a layer counts as often as the network has
it, and the first one, whose input is the image, has no gradient of that.
"""

import measure
import torch


def works_of(cell, device):
    dtype = measure.DTYPES[cell["dtype"]]
    last = {"memory_format": torch.channels_last}
    n, c, h, k, r = (cell[key] for key in ("batch", "channels", "image", "filters", "kernel"))
    x = torch.randn(n, c, h, h, device=device, dtype=dtype).to(**last).requires_grad_()
    w = torch.randn(k, c, r, r, device=device, dtype=dtype).to(**last).requires_grad_()
    where = {"stride": cell["stride"], "padding": r // 2}
    y = torch.nn.functional.conv2d(x, w, **where)
    dy = torch.randn_like(y)

    def forward():
        with torch.no_grad():
            torch.nn.functional.conv2d(x, w, **where)

    def gradient(leaf):
        return lambda: torch.autograd.grad(y, [leaf], dy, retain_graph=True)

    return [
        ("forward", "torch", forward),
        ("backward_x", "torch", gradient(x)),
        ("backward_w", "torch", gradient(w)),
    ]


def main():
    arguments = measure.parse_arguments(__doc__, "bench_conv")
    device = arguments.device
    torch.backends.cudnn.benchmark = True
    dtype, cells = measure.read_figures(arguments.record)
    timer = measure.Timer(arguments.runs, device=device)
    record = measure.Record("conv", dtype, arguments.commit, device)
    print(f"torch {torch.__version__} on {device}; us")
    sums = [0.0, 0.0]  # torch's, ours
    print("channels image filters kernel stride       pass         us         bs   times")
    for cell, mine in cells:
        works = works_of(cell, device)
        for (what, by, _), times in zip(works, timer.interleave([w[2] for w in works])):
            record.add(cell, what, by, times, mine[what]["flops"])
            median, ours = times[len(times) // 2], mine[what]["seconds"]
            if "density" not in cell and (what != "backward_x" or cell["channels"] > 3):
                sums[0] += cell["times"] * median
                sums[1] += cell["times"] * ours
            print(
                f"{cell['channels']:8} {cell['image']:5} {cell['filters']:7} {cell['kernel']:6} "
                f"{cell['stride']:6} {what:>10} {median * 1e6:10.1f} {ours * 1e6:10.1f} "
                f"{median / ours:7.2f}"
            )
    if sums[1] > 0:
        print(f"a step: {sums[0] * 1e3:.1f} ms, bs {sums[1] * 1e3:.1f}, {sums[0] / sums[1]:.2f}")
    if arguments.json:
        record.write(arguments.json)


if __name__ == "__main__":
    main()
