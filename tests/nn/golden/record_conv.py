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
BATCH, HEIGHT, WIDTH = 2, 11, 9


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
            ).double()
            for number, (_, parameter) in enumerate(sorted(layer.named_parameters())):
                parameter.data = values(parameter.shape, 10 + number)
            x = values((BATCH, cin, HEIGHT, WIDTH), 1).requires_grad_()
            y = layer(x)
            (y * values(y.shape, 4)).sum().backward()
            write(file, "y", y)
            write(file, "dx", x.grad)
            for name, parameter in sorted(layer.named_parameters()):
                write(file, name, parameter.grad)


if __name__ == "__main__":
    main()
