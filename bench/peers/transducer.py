#!/usr/bin/env python3
"""The peers of bench_transducer: the losses and the joint of its record in PyTorch.

    bench_transducer --device cuda --dtype bf16 --json own.json
    python3 transducer.py --record own.json --json peers.json

    torchaudio          torchaudio.functional.rnnt_loss, where it can be imported; it takes f32 and
                        f16, other logits are converted
    torch diagonals     log_softmax, then a recursion over anti-diagonals, as one writes it
    torch               relu(f[:, :, None] + g[:, None]) with the result stored, and with dropout;
                        F.ctc_loss behind F.log_softmax

Losses are timed forward and backward together, for autograd computes some of both in either.
"""

import measure
import torch
import torch.nn.functional as F


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


def random(cell, device, *shape):
    return torch.randn(*shape, device=device, dtype=measure.DTYPES[cell["dtype"]]).requires_grad_()


def loss_works(cell, device):
    """{by: {what: work}} of one cell of the transducer's loss."""
    batch, frames, labels, classes = (cell[name] for name in ("batch", "frames", "labels", "n"))
    x = random(cell, device, batch, frames, labels + 1, classes)
    targets = torch.randint(0, classes - 1, (batch, labels), device=device)
    ints = {"dtype": torch.int32, "device": device}
    lengths = (torch.full((batch,), frames, **ints), torch.full((batch,), labels, **ints))

    def both(loss):
        x.grad = None
        loss().backward()

    works = {"torch diagonals": {"both": lambda: both(lambda: diagonals(x, targets))}}
    try:
        from torchaudio.functional import rnnt_loss
    except Exception as error:  # not installed, or built for another PyTorch
        print(f"no torchaudio: {error}")
        return works
    taken = x.dtype in (torch.float32, torch.float16)

    def torchaudio():
        return rnnt_loss(x if taken else x.float(), targets.int(), *lengths)

    return {"torchaudio": {"both": lambda: both(torchaudio)}, **works}


def joint_works(cell, device):
    batch, frames, labels, n = (cell[name] for name in ("batch", "frames", "labels", "n"))
    f = random(cell, device, batch, frames, n)
    g = random(cell, device, batch, labels + 1, n)

    def forward():
        h = torch.relu(f[:, :, None] + g[:, None])
        return F.dropout(h, cell["dropout"]) if cell["dropout"] else h

    h = forward()
    dh = torch.randn_like(h)
    backward = lambda: torch.autograd.grad(h, (f, g), dh, retain_graph=True)  # noqa: E731
    return {"torch": {"forward": forward, "backward": backward}}


def ctc_works(cell, device):
    batch, frames, labels, classes = (cell[name] for name in ("batch", "frames", "labels", "n"))
    x = random(cell, device, frames, batch, classes)
    targets = torch.randint(1, classes, (batch, labels), device=device)
    inputs, lengths = torch.full((batch,), frames), torch.full((batch,), labels)

    def both():
        x.grad = None
        F.ctc_loss(F.log_softmax(x, -1), targets, inputs, lengths).backward()

    return {"torch": {"both": both}}


WORKS = {"loss": loss_works, "joint": joint_works, "ctc": ctc_works}


def main():
    arguments = measure.parse_arguments(__doc__, "bench_transducer")
    device = arguments.device
    _, cells = measure.read_figures(arguments.record)
    timer = measure.Timer(arguments.runs, device=device)
    record = measure.Record("transducer", cells[0][0]["dtype"], arguments.commit, device)
    for cell, ours in cells:
        print(", ".join(f"{name} {value}" for name, value in cell.items()))
        for by, works in WORKS[cell["work"]](cell, device).items():
            for what, work in works.items():
                try:
                    seconds = timer.interleave([work])[0]
                except RuntimeError as error:
                    record.add_failure(cell, what, by, error)
                    print(f"  {what:9} {by:16} {str(error).splitlines()[0][:60]}")
                    continue
                mine = ours[what]
                record.add(cell, what, by, seconds, bytes=mine["bytes"])
                median = seconds[len(seconds) // 2]
                print(
                    f"  {what:9} {by:16} {1e6 * median:10.1f} us, {median / mine['seconds']:.2f} "
                    "times as long as ours",
                    flush=True,
                )
        if device == "cuda":
            torch.cuda.empty_cache()
    if arguments.json:
        record.write(arguments.json)


if __name__ == "__main__":
    main()
