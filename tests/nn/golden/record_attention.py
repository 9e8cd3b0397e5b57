#!/usr/bin/env python3
"""Records attention.txt: torch.nn.MultiheadAttention's results and gradients for weights and inputs
that the C++ test makes from the same integer formula, bit for bit; see record_lstm.py.

    pip install torch && python3 record_attention.py attention.txt

All in double on the CPU. The loss is the output times values from the formula.
"""

import sys

import torch

from record_lstm import values, write

CASES = [
    # cross-attention, features of keys, features of values, bias, causal, padding
    (False, 12, 12, True, False, False),
    (False, 12, 12, False, True, True),
    (True, 12, 12, True, False, True),
    (True, 5, 7, True, False, False),
]
BATCH, QUERIES, KEYS, WIDTH, HEADS = 3, 9, 11, 12, 3
LENGTHS = [9, 4, 1]


def main():
    torch.set_num_threads(1)
    with open(sys.argv[1], "w") as file:
        print(f"# torch {torch.__version__}, float64, CPU; see record_attention.py", file=file)
        for cross, key_width, value_width, bias, causal, padding in CASES:
            print("case", *map(int, (cross, key_width, value_width, bias, causal, padding)), file=file)
            layer = torch.nn.MultiheadAttention(
                WIDTH, HEADS, bias=bias, batch_first=True, kdim=key_width, vdim=value_width
            ).double()
            for number, (_, parameter) in enumerate(sorted(layer.named_parameters())):
                parameter.data = values(parameter.shape, 10 + number) * 0.5
            keys = KEYS if cross else QUERIES
            query = values((BATCH, QUERIES, WIDTH), 1).requires_grad_()
            key = values((BATCH, keys, key_width), 2).requires_grad_() if cross else query
            value = values((BATCH, keys, value_width), 3).requires_grad_() if cross else query
            hidden = None
            if padding:
                hidden = torch.arange(keys)[None, :] >= torch.tensor(LENGTHS)[:, None]
            mask = torch.ones(QUERIES, keys, dtype=torch.bool).triu(1) if causal else None
            y, _ = layer(query, key, value, hidden, False, mask)
            (y * values(y.shape, 4)).sum().backward()
            write(file, "y", y)
            write(file, "dquery", query.grad)
            if cross:
                write(file, "dkey", key.grad)
                write(file, "dvalue", value.grad)
            for name, parameter in sorted(layer.named_parameters()):
                write(file, name, parameter.grad)


if __name__ == "__main__":
    main()
