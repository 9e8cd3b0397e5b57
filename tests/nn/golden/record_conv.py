#!/usr/bin/env python3
"""Records conv.txt: results and gradients of torch's convolutions for weights and inputs that the
C++ test makes from the same integer formula, bit for bit; see record_lstm.py.

    pip install torch && python3 record_conv.py conv.txt

All in double on the CPU. The loss is the output times values from the formula.
"""

import sys

import torch

from record_lstm import values, write

CASES = [
    # transposed, in, out, kernel, stride, padding, dilation, groups, output padding; "same" is -1
    (0, 6, 8, 3, 1, 1, 1, 1, 0),
    (0, 6, 8, 3, 2, 1, 2, 2, 0),
    (0, 6, 6, 5, 3, 2, 1, 6, 0),
    (0, 6, 4, 4, 1, -1, 1, 1, 0),
    (0, 6, 12, 1, 2, 0, 1, 3, 0),
    (1, 6, 8, 3, 2, 1, 1, 1, 1),
    (1, 6, 4, 4, 3, 0, 2, 2, 2),
]
# Conv2d of an image with zeros around it, then an activation by its number.
PADDED = [
    # 2, in, out, kernel, stride, top, bottom, left, right, dilation, groups, activation
    (2, 6, 8, 3, 1, 1, 0, 2, 1, 1, 1, 0),
    (2, 6, 4, 3, 2, 0, 3, 1, 0, 2, 2, 1),
    (2, 6, 6, 2, 1, 2, 0, 0, 1, 1, 3, 2),
    (2, 6, 8, 5, 3, 1, 2, 3, 2, 1, 1, 3),
    (2, 6, 4, 3, 1, 1, 1, 0, 2, 1, 1, 4),
    (2, 6, 4, 3, 1, 0, 1, 2, 0, 1, 2, 5),
    (2, 6, 6, 3, 2, 1, 0, 0, 1, 1, 6, 6),
]
F = torch.nn.functional
ACTIVATIONS = [
    lambda x: x, torch.relu, torch.tanh, torch.sigmoid, F.silu, F.gelu,
    lambda x: F.gelu(x, approximate="tanh"),
]
LINES = [
    # 3, in, out, kernel, stride, left, right, dilation, groups; "same" is -1
    (3, 6, 8, 3, 1, 0, 0, 1, 1),
    (3, 6, 4, 3, 2, 1, 1, 1, 2),
    (3, 6, 4, 5, 3, 3, 1, 2, 1),
    (3, 6, 6, 3, 1, -1, -1, 2, 6),
    (3, 6, 9, 4, 1, -1, -1, 1, 3),
    (3, 6, 4, 1, 2, 0, 2, 1, 1),
]
BATCH, HEIGHT, WIDTH = 2, 11, 9
LENGTH = 23


def record(file, layer, forward, shape):
    layer = layer.double()
    for number, (_, parameter) in enumerate(sorted(layer.named_parameters())):
        parameter.data = values(parameter.shape, 10 + number)
    x = values(shape, 1).requires_grad_()
    y = forward(layer, x)
    (y * values(y.shape, 4)).sum().backward()
    write(file, "y", y)
    write(file, "dx", x.grad)
    for name, parameter in sorted(layer.named_parameters()):
        write(file, name, parameter.grad)


def record_padded(file, case):
    _, cin, out, kernel, stride, top, bottom, left, right, dilation, groups, which = case
    layer = torch.nn.Conv2d(cin, out, kernel, stride, 0, dilation, groups)

    def forward(layer, x):
        return ACTIVATIONS[which](layer(F.pad(x, (left, right, top, bottom))))

    record(file, layer, forward, (BATCH, cin, HEIGHT, WIDTH))


def record_line(file, case):
    _, cin, out, kernel, stride, left, right, dilation, groups = case
    same = left < 0
    layer = torch.nn.Conv1d(cin, out, kernel, stride, "same" if same else 0, dilation, groups)
    pad = (0, 0) if same else (left, right)
    record(file, layer, lambda layer, x: layer(F.pad(x, pad)), (BATCH, cin, LENGTH))


def main():
    torch.set_num_threads(1)
    with open(sys.argv[1], "w") as file:
        print(f"# torch {torch.__version__}, float64, CPU; see record_conv.py", file=file)
        for case in CASES:
            transposed, cin, out, kernel, stride, padding, dilation, groups, more = case
            print("case", *case, file=file)
            kind = torch.nn.ConvTranspose2d if transposed else torch.nn.Conv2d
            extra = {"output_padding": more} if transposed else {}
            layer = kind(
                cin, out, kernel, stride, "same" if padding < 0 else padding, dilation=dilation,
                groups=groups, **extra
            )
            record(file, layer, lambda layer, x: layer(x), (BATCH, cin, HEIGHT, WIDTH))
        for case in PADDED:
            print("case", *case, file=file)
            record_padded(file, case)
        for case in LINES:
            print("case", *case, file=file)
            record_line(file, case)


if __name__ == "__main__":
    main()
