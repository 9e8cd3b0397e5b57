#!/usr/bin/env python3
"""Records recurrent.txt: results and gradients of torch.nn.GRU and RNN for weights and inputs
that the C++ test makes from the same integer formula, bit for bit, so that nothing but results is
shipped.

    pip install torch && python3 record_recurrent.py recurrent.txt

All in double on the CPU. The loss is the sum of y and h_n, each times values from the formula. Lines:
`case` and its options; then, for each tensor, a name, the number of its elements, their sum, the sum
of their squares, and elements spread over it, in row-major order.
"""

import sys

import torch
from record_lstm import BATCH, HIDDEN, INPUT, LENGTHS, STEPS, values, write

GRU, TANH, RELU = range(3)
CASES = [
    # kind, layers, bidirectional, bias, batch_first, packed
    (GRU, 1, False, True, False, False),
    (GRU, 2, True, True, True, False),
    (GRU, 2, False, False, False, True),
    (GRU, 3, True, True, True, True),
    (TANH, 1, False, True, False, False),
    (TANH, 2, True, True, True, True),
    (RELU, 2, False, True, False, False),
    (RELU, 2, True, False, False, True),
]


def main():
    torch.set_num_threads(1)
    with open(sys.argv[1], "w") as file:
        print(f"# torch {torch.__version__}, float64, CPU; see record_recurrent.py", file=file)
        for kind, layers, both, bias, batch_first, packed in CASES:
            print("case", kind, layers, *map(int, (both, bias, batch_first, packed)), file=file)
            common = dict(bias=bias, batch_first=batch_first, bidirectional=both)
            if kind == GRU:
                layer = torch.nn.GRU(INPUT, HIDDEN, layers, **common)
            else:
                name = "tanh" if kind == TANH else "relu"
                layer = torch.nn.RNN(INPUT, HIDDEN, layers, nonlinearity=name, **common)
            layer = layer.double()
            for number, parameter in enumerate(layer.parameters()):
                parameter.data = values(parameter.shape, 10 + number) * 0.5
            x = values((BATCH, STEPS, INPUT) if batch_first else (STEPS, BATCH, INPUT), 1)
            h0 = values((layers * (1 + both), BATCH, HIDDEN), 2)
            for leaf in (x, h0):
                leaf.requires_grad_()
            given = x
            if packed:
                given = torch.nn.utils.rnn.pack_padded_sequence(
                    x, torch.tensor(LENGTHS), batch_first, enforce_sorted=False
                )
            y, h = layer(given, h0)
            if packed:
                y = torch.nn.utils.rnn.pad_packed_sequence(y, batch_first, total_length=STEPS)[0]
            loss = sum((t * values(t.shape, 4 + i)).sum() for i, t in enumerate((y, h)))
            loss.backward()
            for name, tensor in (("y", y), ("h", h), ("dx", x.grad), ("dh0", h0.grad)):
                write(file, name, tensor)
            for name, parameter in layer.named_parameters():
                write(file, name, parameter.grad)


if __name__ == "__main__":
    main()
