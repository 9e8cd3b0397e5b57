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
    x = torch.randn(n, c, h, h, device=device, dtype=dtype).to(**last)
    w = torch.randn(k, c, r, r, device=device, dtype=dtype).to(**last)
    stride, padding = [cell["stride"]] * 2, [r // 2] * 2
    dy = torch.randn_like(torch.nn.functional.conv2d(x, w, None, stride, padding))

    def forward():
        torch.nn.functional.conv2d(x, w, None, stride, padding)

    # As autograd calls it, without autograd's work on the host, which takes longer than small layers.
    def gradient(of_x, of_w):
        mask = [of_x, of_w, False]
        return lambda: torch.ops.aten.convolution_backward(
            dy, x, w, None, stride, padding, [1, 1], False, [0, 0], 1, mask
        )

    return [
        ("forward", "torch", forward),
        ("backward_x", "torch", gradient(True, False)),
        ("backward_w", "torch", gradient(False, True)),
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
