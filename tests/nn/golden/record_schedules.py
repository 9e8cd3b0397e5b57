#!/usr/bin/env python3
"""Records schedules.txt: the rates that torch.optim.lr_scheduler gives two groups, step by step.

    pip install torch && python3 record_schedules.py schedules.txt

Lines: a schedule's name, then for each step the rates of both groups, 0.1 and 0.02 before the first.
"""

import sys

import torch
from torch.optim import lr_scheduler as schedulers

STEPS = 24
LOSSES = [3, 2, 2, 2, 1.9999, 1.5, float("nan"), 1.6, 1.5, 1.4, 1.4, 1.4, 1.4, 1.5, 0.1, 0.2]
LOSSES += [0.3, 0.09999, 0.0999, 0.1, 0.1, 0.1, 0.1, 0.1]


def main():
    made = {
        "step": lambda o: schedulers.StepLR(o, 5, 0.5),
        "multi_step": lambda o: schedulers.MultiStepLR(o, [2, 7, 7, 15], 0.3),
        "exponential": lambda o: schedulers.ExponentialLR(o, 0.9),
        "one_cycle": lambda o: schedulers.OneCycleLR(
            o, [0.1, 0.02], total_steps=STEPS + 1, pct_start=9 / 25, cycle_momentum=False
        ),
        "warm_restarts": lambda o: schedulers.CosineAnnealingWarmRestarts(o, 3, 2),
        "cosine": lambda o: schedulers.CosineAnnealingLR(o, STEPS),
        "linear": lambda o: schedulers.LinearLR(o, 1, 0.1, 16),
        "plateau": lambda o: schedulers.ReduceLROnPlateau(
            o, factor=0.5, patience=1, min_lr=[0.1 / 10, 0.02 / 10]
        ),
    }
    with open(sys.argv[1], "w") as file:
        print(f"# torch {torch.__version__}; see record_schedules.py", file=file)
        for name, make in made.items():
            groups = [{"params": [torch.zeros(1)], "lr": rate} for rate in (0.1, 0.02)]
            optimizer = torch.optim.SGD(groups)
            schedule = make(optimizer)
            print(name, end="", file=file)
            for step in range(STEPS):
                optimizer.step()
                if name == "plateau":
                    schedule.step(LOSSES[step])
                for group in optimizer.param_groups:
                    print(f" {group['lr']:.17g}", end="", file=file)
                if name != "plateau":
                    schedule.step()
            print(file=file)


if __name__ == "__main__":
    main()
