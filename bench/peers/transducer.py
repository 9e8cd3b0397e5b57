#!/usr/bin/env python3
"""The peers of bench_transducer: the same losses and joint in PyTorch, on the same sizes.

    python3 transducer.py --device cuda --dtype bf16

    torchaudio  torchaudio.functional.rnnt_loss (f32 and f16), where it can be imported
    diagonals   log_softmax, then a recursion over anti-diagonals, as one writes it in PyTorch
    joint       relu(f[:, :, None] + g[:, None]) with the result stored, and with dropout
    ctc         F.ctc_loss behind F.log_softmax
    copy        of the logits: what the memory does
"""

import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F

DTYPES = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def sizes(text):
    return [tuple(int(x) for x in item.split("x")) for item in text.split(",") if item]


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=DTYPES, default="f32")
    parser.add_argument("--loss", type=sizes, default="8x200x50x1024,16x400x100x1024,32x400x100x128")
    parser.add_argument("--joint", type=sizes, default="16x400x80x640")
    parser.add_argument("--ctc", type=sizes, default="32x1000x150x128")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--json")
    return parser.parse_args()


class Timer:
    """Median seconds of a call; on a GPU by events, with the cache washed before each."""

    def __init__(self, device, seconds):
        self.cuda = device.startswith("cuda")
        self.seconds = seconds
        if self.cuda:
            self.wash = torch.empty(1 << 28, dtype=torch.uint8, device=device)

    def once(self, work):
        if not self.cuda:
            start = time.perf_counter()
            work()
            return time.perf_counter() - start
        self.wash.zero_()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        return 1e-3 * begin.elapsed_time(end)

    def __call__(self, work):
        for _ in range(2):
            self.once(work)
        times = []
        start = time.perf_counter()
        while len(times) < 5 or time.perf_counter() - start < self.seconds:
            times.append(self.once(work))
        return statistics.median(times)


def diagonals(logits, targets):
    """-log of the sum over paths of full lengths, blank last, by anti-diagonals."""
    batch, frames, columns, _ = logits.shape
    log_p = F.log_softmax(logits.float(), -1)
    blank = log_p[..., -1]
    label = log_p[:, :, :-1].gather(3, targets[:, None, :, None].expand(-1, frames, -1, 1))[..., 0]
    label = F.pad(label, (0, 1), value=-1e30)
    # Diagonal d = t + u as rows: skewed[b, d, u] = x[b, d - u, u].
    d = torch.arange(frames + columns - 1, device=logits.device)[:, None]
    t = d - torch.arange(columns, device=logits.device)[None, :]
    inside = (t >= 0) & (t < frames)
    index = t.clamp(0, frames - 1)[None].expand(batch, -1, -1)
    blank = torch.where(inside, blank.gather(1, index), -1e30)
    label = torch.where(inside, label.gather(1, index), -1e30)
    alpha = torch.full((batch, columns), -1e30, device=logits.device)
    alpha[:, 0] = 0
    for i in range(frames + columns - 2):
        moved = F.pad((alpha + label[:, i])[:, :-1], (1, 0), value=-1e30)
        alpha = torch.logaddexp(alpha + blank[:, i], moved)
    return -(alpha + blank[:, -1])[:, -1].mean()


def main():
    args = parse_arguments()
    dtype = DTYPES[args.dtype]
    timer = Timer(args.device, args.seconds)
    rows = []

    def report(name, size, work):
        try:
            seconds = timer(work)
        except (RuntimeError, ValueError) as error:
            print(f"{name:28} {'x'.join(map(str, size)):18} {str(error).splitlines()[0][:60]}")
            return
        print(f"{name:28} {'x'.join(map(str, size)):18} {1e6 * seconds:10.1f} us", flush=True)
        rows.append({"work": name, "size": "x".join(map(str, size)), "seconds": seconds})

    def random(*shape):
        return torch.randn(*shape, device=args.device, dtype=dtype)

    try:
        from torchaudio.functional import rnnt_loss
    except Exception as error:  # not installed, or built for another PyTorch
        print(f"no torchaudio: {error}")
        rnnt_loss = None

    for size in args.loss:
        batch, frames, labels, classes = size
        x = random(batch, frames, labels + 1, classes).requires_grad_()
        targets = torch.randint(0, classes - 1, (batch, labels), device=args.device)
        ints = {"dtype": torch.int32, "device": args.device}
        lengths = (torch.full((batch,), frames, **ints), torch.full((batch,), labels, **ints))

        def both(loss):
            x.grad = None
            loss().backward()

        def copy(y=torch.empty_like(x)):
            y.copy_(x.detach())

        report("copy", size, copy)
        if rnnt_loss:
            report("torchaudio both", size, lambda: both(lambda: rnnt_loss(x, targets.int(), *lengths)))
        report("diagonals both", size, lambda: both(lambda: diagonals(x, targets)))
        x = None
    for size in args.joint:
        batch, frames, labels, n = size
        f = random(batch, frames, n).requires_grad_()
        g = random(batch, labels + 1, n).requires_grad_()
        dh = random(batch, frames, labels + 1, n)
        for p in (0.0, args.dropout):

            def forward():
                h = torch.relu(f[:, :, None] + g[:, None])
                return F.dropout(h, p) if p else h

            kind = " + dropout" if p else ""
            with torch.no_grad():
                report("joint forward" + kind, size, forward)
            report("joint both" + kind, size, lambda: torch.autograd.grad(forward(), (f, g), dh))
        del dh
    for size in args.ctc:
        batch, frames, labels, classes = size
        x = random(frames, batch, classes).requires_grad_()
        targets = torch.randint(1, classes, (batch, labels), device=args.device)
        inputs = torch.full((batch,), frames)
        lengths = torch.full((batch,), labels)

        def ctc():
            x.grad = None
            F.ctc_loss(F.log_softmax(x, -1), targets, inputs, lengths).backward()

        report("ctc both", size, ctc)
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"torch": torch.__version__, "dtype": args.dtype, "rows": rows}, file)


if __name__ == "__main__":
    main()
