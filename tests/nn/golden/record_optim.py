#!/usr/bin/env python3
"""Records optim.txt: what torch.optim makes of parameters and gradients that the C++ test makes
from the same integer formula, bit for bit, so that nothing but results is shipped.

    pip install torch && python3 record_optim.py optim.txt

In double on the CPU, six steps with rates that fall. Muon multiplies in bfloat16 in PyTorch; it is
recorded as it is, and with the cast in its source taken out. Lines: `case`, the optimiser and the
number of its options; then each parameter's name, number of elements, their sum, the sum of their
squares, and elements spread over it.
"""

import inspect
import sys

import torch
from record_lstm import values, write
from torch.optim import _muon

SHAPES = {"tall": (6, 3), "wide": (3, 5), "square": (4, 4), "vector": (7,), "cube": (2, 3, 4)}
RATE = 0.1
ADAM, RMSPROP, ADAFACTOR, MUON, MUON_IN_BF16, ADAMW, SGD = range(7)
CASES = [
    (ADAM, 0, dict()),
    (ADAM, 1, dict(betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1, amsgrad=True)),
    (RMSPROP, 0, dict()),
    (RMSPROP, 1, dict(alpha=0.9, eps=1e-3, weight_decay=0.1, momentum=0.5, centered=True)),
    (RMSPROP, 2, dict(alpha=0.9, momentum=0.5)),
    (ADAFACTOR, 0, dict()),
    (ADAFACTOR, 1, dict(beta2_decay=-0.5, eps=(1e-2, 0.9), d=1.1, weight_decay=0.1)),
    (MUON, 0, dict()),
    (
        MUON,
        1,
        dict(
            weight_decay=0.2,
            momentum=0.8,
            nesterov=False,
            ns_steps=3,
            adjust_lr_fn="match_rms_adamw",
        ),
    ),
    (MUON, 2, dict(ns_coefficients=(2, -1.5, 0.5), adjust_lr_fn="spectral_unclamped")),
    (MUON_IN_BF16, 0, dict()),
    (ADAMW, 0, dict(weight_decay=0.1)),
    (SGD, 0, dict(momentum=0.9, weight_decay=0.1, nesterov=True)),
]
CLASSES = {
    ADAM: torch.optim.Adam,
    RMSPROP: torch.optim.RMSprop,
    ADAFACTOR: torch.optim.Adafactor,
    MUON: torch.optim.Muon,
    MUON_IN_BF16: torch.optim.Muon,
    ADAMW: torch.optim.AdamW,
    SGD: torch.optim.SGD,
}


def main():
    torch.set_num_threads(1)
    original = _muon._zeropower_via_newtonschulz
    source = inspect.getsource(original)
    assert "dtype=torch.bfloat16" in source
    exact = {"torch": torch, "Tensor": torch.Tensor}
    exec(source.replace("dtype=torch.bfloat16", "dtype=grad.dtype"), exact)
    with open(sys.argv[1], "w") as file:
        print(f"# torch {torch.__version__}, float64, CPU; see record_optim.py", file=file)
        for kind, variant, options in CASES:
            print("case", kind, variant, file=file)
            _muon._zeropower_via_newtonschulz = (
                exact["_zeropower_via_newtonschulz"] if kind == MUON else original
            )
            muon = kind in (MUON, MUON_IN_BF16)
            shapes = {n: s for n, s in SHAPES.items() if not muon or len(s) == 2}
            parameters = [
                torch.nn.Parameter(values(s, 10 + i)) for i, s in enumerate(shapes.values())
            ]
            optimizer = CLASSES[kind](parameters, lr=RATE, **options)
            for step in range(6):
                for i, p in enumerate(parameters):
                    p.grad = values(p.shape, 100 * (step + 1) + i)
                optimizer.param_groups[0]["lr"] = RATE / (1 + step)
                optimizer.step()
            for name, p in zip(shapes, parameters):
                write(file, name, p)


if __name__ == "__main__":
    main()
