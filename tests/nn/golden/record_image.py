#!/usr/bin/env python3
"""Records image.txt: results and gradients of torch's norms, poolings, borders and resizings, for
inputs that the C++ test makes from the same integer formula, bit for bit; see record_lstm.py.

    pip install torch && python3 record_image.py image.txt

All in double on the CPU. The loss is the output times values from the formula.
"""

import sys

import torch
from torch import nn

from record_lstm import values, write

BATCH, CHANNELS, HEIGHT, WIDTH = 3, 6, 7, 5


def batch_norm_in_use():
    layer = nn.BatchNorm2d(CHANNELS, eps=1e-3)
    layer.double()(values((BATCH, CHANNELS, HEIGHT, WIDTH), 7))
    return layer.eval()


# In the order of image_golden_test.cpp.
LAYERS = [
    lambda: nn.BatchNorm2d(CHANNELS, momentum=0.3),
    batch_norm_in_use,
    lambda: nn.GroupNorm(3, CHANNELS),
    lambda: nn.InstanceNorm2d(CHANNELS, affine=True),
    lambda: nn.MaxPool2d(3, 2, 1),
    lambda: nn.MaxPool2d((2, 3), (3, 2), (1, 0), ceil_mode=True),
    lambda: nn.AvgPool2d(3, 2, 1),
    lambda: nn.AvgPool2d(2, 3, 1, ceil_mode=True, count_include_pad=False),
    lambda: nn.AdaptiveAvgPool2d((3, 4)),
    lambda: nn.Upsample((4, 9), mode="nearest"),
    lambda: nn.Upsample((4, 9), mode="bilinear"),
    lambda: nn.Upsample((4, 9), mode="bilinear", align_corners=True),
    lambda: nn.ReflectionPad2d((3, 1, 0, 2)),
    lambda: nn.ReplicationPad2d((3, 1, 0, 2)),
    lambda: nn.ConstantPad2d((3, 1, 0, 2), 0.5),
]


def main():
    torch.set_num_threads(1)
    with open(sys.argv[1], "w") as file:
        print(f"# torch {torch.__version__}, float64, CPU; see record_image.py", file=file)
        for number, make in enumerate(LAYERS):
            print("case", number, file=file)
            layer = make().double()
            for k, (_, parameter) in enumerate(sorted(layer.named_parameters())):
                parameter.data = values(parameter.shape, 10 + k)
            x = values((BATCH, CHANNELS, HEIGHT, WIDTH), 1).requires_grad_()
            y = layer(x)
            (y * values(y.shape, 4)).sum().backward()
            write(file, "y", y)
            write(file, "dx", x.grad)
            for name, parameter in sorted(layer.named_parameters()):
                write(file, name, parameter.grad)
            for name, buffer in sorted(layer.named_buffers()):
                write(file, name, buffer.double())


if __name__ == "__main__":
    main()
