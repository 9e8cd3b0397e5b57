"""Attention that skips blocks or keys by lists, of packages that PyTorch does not bring.

    flash4        FlashAttention 4 (flash-attn-4) with lists of blocks: of 128, and of 64 forward
    cudnn_flex    cudnn.flex_attention (nvidia-cudnn-frontend) with intervals of keys for each query,
                  and its deterministic backward
    cudnn_blocks  cuDNN's block-sparse attention (the same package) with lists of blocks: of 64 and
                  128, where the pattern is not causal

Each takes a problem of sparse_attention.py and gives what computes its forward. A package is imported
when it is asked for.
"""

import torch


def lists(kept):
    """How many blocks each row keeps, [1, 1, rows], and which, [1, 1, rows, most]."""
    kept = kept.contiguous()  # or a single column would have a stride
    counts = kept.sum(-1, dtype=torch.int32)
    columns = torch.argsort(~kept, dim=-1, stable=True).to(torch.int32)
    most = max(int(counts.max()), 1)
    return counts[None, None].contiguous(), columns[None, None, :, :most].contiguous()


def require_blocks(problem, allowed):
    if problem.block not in allowed:
        raise ValueError(f"blocks of {problem.block}, not of {' or '.join(map(str, allowed))}")


def flash4(problem):
    import cutlass.cute as cute
    from flash_attn.cute.block_sparsity import BlockSparseTensorsTorch
    from flash_attn.cute.interface import flash_attn_func

    @cute.jit
    def lower_half(batch, head, query, key, lengths, tensors):
        return key <= query

    require_blocks(problem, (64, 128))
    cut = torch.zeros_like(problem.kept)  # blocks of which a part is seen
    if problem.causal:
        cut.fill_diagonal_(True)
    cut &= problem.kept
    whole = problem.kept & ~cut

    def tensors(cut, whole):
        return BlockSparseTensorsTorch(*lists(cut), *lists(whole), block_size=(problem.block,) * 2)

    options = {
        "block_sparse_tensors": tensors(cut, whole),
        "block_sparse_tensors_bwd": tensors(cut.t(), whole.t()),
        "mask_mod": lower_half if problem.causal else None,
    }

    def forward():
        q, k, v = (x.transpose(1, 2) for x in (problem.q, problem.k, problem.v))
        return flash_attn_func(q, k, v, **options)[0].transpose(1, 2)

    return forward


def intervals(problem):
    """[1, 1 + 2 n, batch x queries]: the end of the keys seen from the first on, then the bounds of n
    intervals more."""
    kept, block, length = problem.kept, problem.block, problem.q.shape[2]
    edge = torch.nn.functional.pad(kept, (1, 1)).int().diff(dim=-1)
    begins = [(row == 1).nonzero().flatten().tolist() for row in edge.cpu()]
    ends = [(row == -1).nonzero().flatten().tolist() for row in edge.cpu()]
    most = max(map(len, begins))
    bounds = torch.zeros(1 + 2 * most, length // block, dtype=torch.int32)
    for row, runs in enumerate(zip(begins, ends)):
        for i, (begin, end) in enumerate(zip(*runs)):
            bounds[1 + 2 * i, row], bounds[2 + 2 * i, row] = begin * block, end * block
        bounds[1 + 2 * len(runs[0]) :, row] = bounds[2 * len(runs[0]), row]  # none
    bounds = bounds.repeat_interleave(block, 1).to(kept.device)
    if problem.causal:
        seen = torch.arange(1, length + 1, dtype=torch.int32, device=kept.device)
        bounds = torch.minimum(bounds, seen)
    return bounds.repeat(1, problem.q.shape[0])[None].contiguous()


def cudnn_flex(problem):
    from cudnn.flex_attention import create_mask_plan, flex_attn_func

    def turned():
        return (x.transpose(1, 2) for x in (problem.q, problem.k, problem.v))

    plan = create_mask_plan(intervals(problem), *turned())
    return lambda: flex_attn_func(*turned(), mask_plan=plan, deterministic=True).transpose(1, 2)


def cudnn_blocks(problem):
    from cudnn.block_sparse_attention import (
        block_sparse_attention_backward,
        block_sparse_attention_forward,
    )

    require_blocks(problem, (64, 128))
    if problem.causal:
        raise ValueError("no causal patterns")
    counts, columns = lists(problem.kept)
    batch, heads = problem.q.shape[:2]
    options = {
        "q2k_block_index": columns.expand(batch, heads, -1, -1).contiguous(),
        "q2k_block_nums": counts.expand(batch, heads, -1).contiguous(),
        "sparse_block_size": problem.block,
    }

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(context, q, k, v):
            result = block_sparse_attention_forward(q, k, v, **options)
            context.save_for_backward(q, k, v, result["o_tensor"], result["lse_tensor"])
            return result["o_tensor"]

        @staticmethod
        def backward(context, dout):
            result = block_sparse_attention_backward(dout, *context.saved_tensors, **options)
            return result["dq_tensor"], result["dk_tensor"], result["dv_tensor"]

    return lambda: Function.apply(problem.q, problem.k, problem.v)
