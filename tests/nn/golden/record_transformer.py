#!/usr/bin/env python3
"""Records transformer.txt: torch.nn.Transformer's results and gradients for weights and inputs that
the C++ test makes from the same integer formula, bit for bit; see record_lstm.py.

    pip install torch && python3 record_transformer.py transformer.txt

All in double on the CPU, without dropout. The loss is the output times values from the formula.
"""

import sys

import torch

from record_lstm import values, write

CASES = [
    # norms first, GELU, masks of every attention in the place of a causal one
    (False, False, False),
    (True, True, False),
    (False, True, True),
]
BATCH, SOURCE, TARGET, WIDTH, HEADS, HIDDEN = 2, 9, 7, 8, 2, 12
LENGTHS = [9, 4]


def masks(masked):
    """Those of source, target and memory. Booleans hide what is true; all rows see their first."""
    if not masked:
        return None, torch.ones(TARGET, TARGET, dtype=torch.bool).triu(1), None
    source, target = values((SOURCE, SOURCE), 4) > 0, values((TARGET, TARGET), 5)
    memory = values((TARGET, SOURCE), 6) > 0
    source[:, 0] = memory[:, 0] = False
    return source, target, memory


def main():
    torch.set_num_threads(1)
    with open(sys.argv[1], "w") as file:
        print(f"# torch {torch.__version__}, float64, CPU; see record_transformer.py", file=file)
        for norm_first, gelu, masked in CASES:
            print("case", *map(int, (norm_first, gelu, masked)), file=file)
            model = torch.nn.Transformer(
                WIDTH, HEADS, 2, 2, HIDDEN, 0.0, "gelu" if gelu else "relu",
                batch_first=True, norm_first=norm_first,
            ).double()
            for number, (_, parameter) in enumerate(sorted(model.named_parameters())):
                parameter.data = values(parameter.shape, 10 + number) * 0.5
            source = values((BATCH, SOURCE, WIDTH), 1).requires_grad_()
            target = values((BATCH, TARGET, WIDTH), 2).requires_grad_()
            hidden = torch.arange(SOURCE)[None, :] >= torch.tensor(LENGTHS)[:, None]
            y = model(
                source, target, *masks(masked),
                src_key_padding_mask=hidden, memory_key_padding_mask=hidden,
            )
            (y * values(y.shape, 3)).sum().backward()
            for name, tensor in (("y", y), ("dsource", source.grad), ("dtarget", target.grad)):
                write(file, name, tensor)
            for name, parameter in sorted(model.named_parameters()):
                write(file, name, parameter.grad)


if __name__ == "__main__":
    main()
