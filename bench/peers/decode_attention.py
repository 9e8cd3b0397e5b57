#!/usr/bin/env python3
"""The peers of bench_decode_attention: PyTorch's scaled_dot_product_attention with grouped heads.

    bench_decode_attention --device cuda --dtype bf16 --json own.json
    python3 decode_attention.py --record own.json --json peers.json

Times each cell of the record with the backends flash and cudnn, keys and values in order. They know
no pages. Of several queries they see all keys: a few scores more than ours.
"""

import measure
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
WHAT = "in order"


def works_of(cell, dtype, device):
    def random(heads, rows):
        shape = (cell["batch"], heads, rows, cell["head_dim"])
        return torch.randn(shape, device=device, dtype=dtype)

    q = random(cell["heads"], cell["queries"])
    k, v = (random(cell["kv_heads"], cell["keys"]) for _ in range(2))

    def work_of(backend):
        def work():
            with sdpa_kernel(backend):
                F.scaled_dot_product_attention(q, k, v, enable_gqa=True)

        return work

    return {name: work_of(backend) for name, backend in BACKENDS.items()}


def main():
    arguments = measure.parse_arguments(__doc__, "bench_decode_attention")
    device = arguments.device
    dtype, cells = measure.read_figures(arguments.record)
    timer = measure.Timer(arguments.runs, device=device)
    record = measure.Record("decode_attention", dtype, arguments.commit, device)
    print(f"torch {torch.__version__} on {device}; us")
    for cell, mine in cells:
        ours = mine[WHAT]
        for by, work in works_of(cell, measure.DTYPES[dtype], device).items():
            try:
                times = timer.interleave([work])[0]
            except RuntimeError as error:  # the backend does not take it
                record.add_failure(cell, WHAT, by, error)
                continue
            record.add(cell, WHAT, by, times, ours["flops"], ours["bytes"])
            median, own = times[len(times) // 2], ours["seconds"]
            print(
                f"batch {cell['batch']} keys {cell['keys']:6} {by:>6} {median * 1e6:9.1f} "
                f"{own * 1e6:9.1f} {median / own:7.2f}",
                flush=True,
            )
    if arguments.json:
        record.write(arguments.json)


if __name__ == "__main__":
    main()
