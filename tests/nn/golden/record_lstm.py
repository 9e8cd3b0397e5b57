#!/usr/bin/env python3
"""Records lstm.txt: torch.nn.LSTM's results and gradients for weights and inputs that the C++ test
makes from the same integer formula, bit for bit, so that nothing but results is shipped.

    pip install torch && python3 record_lstm.py lstm.txt

All in double on the CPU. The loss is the sum of y, h_n and c_n, each times values from the formula,
so that gradients arrive at all three. Lines: `case` and its options; then, for each tensor, a name,
the number of its elements, their sum, the sum of their squares, and elements spread over it, in
row-major order.
"""

import sys

import torch

CASES = [
    # layers, bidirectional, projection, bias, batch_first, packed
    (1, False, 0, True, False, False),
    (2, False, 0, True, False, False),
    (2, True, 0, True, True, False),
    (1, True, 3, True, False, False),
    (3, True, 2, False, False, True),
    (2, False, 0, True, True, True),
]
STEPS, BATCH, INPUT, HIDDEN = 6, 4, 5, 7
LENGTHS = [6, 2, 5, 1]
SAMPLES = 8


def values(shape, number):
    """Element i of tensor `number`: an integer hash, mapped to [-1, 1) in exact steps."""
    count = 1
    for extent in shape:
        count *= extent
    out = []
    for i in range(count):
        z = (i * 2654435761 + number * 40503 + 12345) % 2**32
        z ^= z >> 15
        z = z * 2246822519 % 2**32
        z ^= z >> 13
        out.append((z % 4096 - 2048) / 2048)
    return torch.tensor(out, dtype=torch.float64).reshape(shape)


def write(file, name, tensor):
    flat = tensor.detach().contiguous().flatten()
    n = flat.numel()
    picks = [flat[n * k // SAMPLES].item() for k in range(min(SAMPLES, n))]
    numbers = [flat.sum().item(), (flat * flat).sum().item(), *picks]
    print(name, n, *(f"{v:.17g}" for v in numbers), file=file)


def main():
    torch.set_num_threads(1)
    with open(sys.argv[1], "w") as file:
        print(f"# torch {torch.__version__}, float64, CPU; see record_lstm.py", file=file)
        for layers, both, projection, bias, batch_first, packed in CASES:
            print("case", layers, *map(int, (both, projection, bias, batch_first, packed)), file=file)
            lstm = torch.nn.LSTM(
                INPUT, HIDDEN, layers, bias, batch_first, bidirectional=both, proj_size=projection
            ).double()
            for number, parameter in enumerate(lstm.parameters()):
                parameter.data = values(parameter.shape, 10 + number) * 0.5
            x = values((BATCH, STEPS, INPUT) if batch_first else (STEPS, BATCH, INPUT), 1)
            directions, outputs = 1 + both, projection or HIDDEN
            h0 = values((layers * directions, BATCH, outputs), 2)
            c0 = values((layers * directions, BATCH, HIDDEN), 3)
            for leaf in (x, h0, c0):
                leaf.requires_grad_()
            given = x
            if packed:
                given = torch.nn.utils.rnn.pack_padded_sequence(
                    x, torch.tensor(LENGTHS), batch_first, enforce_sorted=False
                )
            y, (h, c) = lstm(given, (h0, c0))
            if packed:
                y = torch.nn.utils.rnn.pad_packed_sequence(y, batch_first, total_length=STEPS)[0]
            loss = sum((t * values(t.shape, 4 + i)).sum() for i, t in enumerate((y, h, c)))
            loss.backward()
            for name, tensor in (("y", y), ("h", h), ("c", c)):
                write(file, name, tensor)
            for name, leaf in (("dx", x), ("dh0", h0), ("dc0", c0)):
                write(file, name, leaf.grad)
            for name, parameter in lstm.named_parameters():
                write(file, name, parameter.grad)


if __name__ == "__main__":
    main()
