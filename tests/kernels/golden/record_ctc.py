#!/usr/bin/env python3
"""Records losses and gradients of torch.nn.functional.ctc_loss behind log_softmax, in double:

    python3 record_ctc.py > ctc.h

Logits are 3 sin(0.7 i + 0.1 (i mod 5)) of the element's number i, the upstream gradient of utterance
b is 1 - 0.6 b, so that a test can make them again.
"""

import torch
import torch.nn.functional as F

FRAMES, BATCH, CLASSES = 12, 4, 6
INPUTS = [12, 9, 5, 3]
TARGETS = [[1, 2, 2, 3], [4, 1, 0, 0], [3, 3, 3, 0], [1, 2, 3, 4]]
LENGTHS = [4, 2, 3, 4]  # the last needs 4 frames, the third 5


def logits():
    i = torch.arange(FRAMES * BATCH * CLASSES, dtype=torch.float64)
    x = 3 * torch.sin(0.7 * i + 0.1 * (i % 5))
    return x.view(FRAMES, BATCH, CLASSES).requires_grad_()


def run(blank, reduction):
    x = logits()
    targets = torch.tensor(TARGETS)
    if blank == 5:
        targets = targets.clamp(max=4)
    loss = F.ctc_loss(
        F.log_softmax(x, -1),
        targets,
        torch.tensor(INPUTS),
        torch.tensor(LENGTHS),
        blank=blank,
        reduction=reduction,
        zero_infinity=True,
    )
    upstream = 1 - 0.6 * torch.arange(BATCH, dtype=torch.float64)
    loss.backward(upstream if reduction == "none" else torch.tensor(1.0, dtype=torch.float64))
    return loss.detach().view(-1).tolist(), x.grad.view(-1).tolist()


def numbers(values):
    text = ""
    line = "     {"
    for i, v in enumerate(values):
        word = f"{v:.17g}" + (", " if i + 1 < len(values) else "")
        if len(line) + len(word.rstrip()) > 99:
            text += line.rstrip() + "\n"
            line = "      "
        line += word
    return text + line + "}"


print("#pragma once")
print(f"/** @file Written by record_ctc.py with PyTorch {torch.__version__}. */")
print("#include <vector>\n")
print("namespace bs::test {\n")
print("struct CtcGolden {")
print("  int blank;")
print("  const char* reduction;")
print("  std::vector<double> loss, gradient;")
print("};\n")
print("// clang-format off")
print("inline const std::vector<CtcGolden> ctc_golden = {")
for blank in (0, 5):
    for reduction in ("none", "mean", "sum"):
        loss, gradient = run(blank, reduction)
        print(f'    {{{blank}, "{reduction}",\n{numbers(loss)},\n{numbers(gradient)}}},')
print("};")
print("// clang-format on\n")
print("}  // namespace bs::test")
