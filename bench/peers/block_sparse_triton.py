"""Block-sparse products as one writes them in Triton: one program a block (sdd), or one a block row
and tile of columns (dsd, and dds the other way round). What a user of Triton would have."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["blocks"])
def sdd_kernel(
    a, b, out, rows, cols, depth, blocks,
    a_batch, a_m, a_k, b_batch, b_k, b_n,
    BLOCK: tl.constexpr, STEP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Block `p` of a b: a row of blocks of a times a column of blocks of b."""
    p = tl.program_id(0)
    batch = tl.program_id(1).to(tl.int64)
    side = tl.arange(0, BLOCK)
    step = tl.arange(0, STEP)
    m = tl.load(rows + p) * BLOCK + side
    n = tl.load(cols + p) * BLOCK + side
    left = a + batch * a_batch + m[:, None].to(tl.int64) * a_m + step[None, :] * a_k
    right = b + batch * b_batch + step[:, None] * b_k + n[None, :].to(tl.int64) * b_n
    sums = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for _ in range(0, depth, STEP):
        sums = tl.dot(tl.load(left), tl.load(right), sums, input_precision=PRECISION)
        left += STEP * a_k
        right += STEP * b_k
    place = (batch * blocks + p) * (BLOCK * BLOCK) + side[:, None] * BLOCK + side[None, :]
    tl.store(out + place, sums.to(out.dtype.element_ty))


@triton.jit
def strip_kernel(
    values, numbers, partners, offsets, dense, out,
    v_r, v_c, d_r, d_c, o_r, o_c,
    BLOCK: tl.constexpr, TILE: tl.constexpr, STEP: tl.constexpr, RIGHT: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """One strip of blocks times the rows of `dense` it names: out[strip, tile]. With RIGHT the
    blocks stand on the right of the product, and a strip is a column of blocks: out[tile, strip].
    Entry (r, c) of a block lies at r v_r + c v_c, transposed or not; dsd sums over `c`, dds over
    `r`. d_r and o_r step along the strip's direction, d_c and o_c along the tile."""
    strip = tl.program_id(0)
    tile = tl.program_id(1).to(tl.int64) * TILE + tl.arange(0, TILE)
    side = tl.arange(0, BLOCK)
    step = tl.arange(0, STEP)
    first = tl.load(offsets + strip)
    last = tl.load(offsets + strip + 1)
    parts: tl.constexpr = BLOCK // STEP
    if RIGHT:
        sums = tl.zeros((TILE, BLOCK), dtype=tl.float32)
    else:
        sums = tl.zeros((BLOCK, TILE), dtype=tl.float32)
    for turn in range(0, (last - first) * parts):
        entry = first + turn // parts
        inner = (turn % parts) * STEP + step
        block = values + tl.load(numbers + entry).to(tl.int64) * (BLOCK * BLOCK)
        at = tl.load(partners + entry).to(tl.int64) * BLOCK + inner
        if RIGHT:
            x = tl.load(dense + tile[:, None] * d_c + at[None, :] * d_r)
            y = tl.load(block + inner[:, None] * v_r + side[None, :] * v_c)
        else:
            x = tl.load(block + side[:, None] * v_r + inner[None, :] * v_c)
            y = tl.load(dense + at[:, None] * d_r + tile[None, :] * d_c)
        sums = tl.dot(x, y, sums, input_precision=PRECISION)
    across = strip.to(tl.int64) * BLOCK + side
    if RIGHT:
        place = tile[:, None] * o_c + across[None, :] * o_r
    else:
        place = across[:, None] * o_r + tile[None, :] * o_c
    tl.store(out + place, sums.to(out.dtype.element_ty))


# (inner step, warps, stages); the first is the one that no tuning would give.
SDD_CONFIGS = {
    16: [(32, 4, 4), (64, 1, 4), (128, 2, 3), (64, 2, 4)],
    32: [(32, 4, 4), (64, 4, 4), (64, 2, 4), (128, 4, 3)],
    64: [(32, 4, 4), (64, 4, 4), (64, 8, 3), (128, 4, 3)],
    128: [(32, 4, 4), (64, 8, 3), (64, 4, 4), (64, 8, 4), (32, 8, 4)],
}
# (tile, inner step, warps, stages)
STRIP_CONFIGS = {
    16: [(128, 16, 4, 4), (128, 16, 2, 5), (256, 16, 4, 4), (64, 16, 2, 5)],
    32: [(128, 32, 4, 4), (256, 32, 4, 4), (128, 32, 2, 4), (256, 32, 8, 4)],
    64: [(128, 32, 4, 4), (128, 64, 4, 4), (256, 64, 8, 3), (256, 64, 4, 3)],
    128: [(128, 32, 4, 4), (128, 64, 8, 3), (128, 64, 4, 3), (256, 64, 8, 3), (128, 32, 8, 4)],
}


def launch_sdd(config, a, b, out, layout, precision, kernel_run):
    """a, b: [batch, m, k] and [batch, k, n], any strides; out: [batch, nnz, block, block]."""
    step, warps, stages = config
    return kernel_run(
        sdd_kernel, (layout.nnz, a.shape[0]),
        a, b, out, layout.rows, layout.cols, a.shape[2], layout.nnz,
        *a.stride(), *b.stride(),
        BLOCK=layout.block, STEP=step, PRECISION=precision, num_warps=warps, num_stages=stages,
    )  # fmt: skip


def launch_strip(config, values, layout, dense, out, transposed, right, precision, kernel_run):
    """dsd: out = op(s) dense; dds (right): out = dense op(s). All are two-dimensional."""
    tile, step, warps, stages = config
    block = layout.block
    # Strips are rows of op(s) for dsd and columns of op(s) for dds.
    by_row = transposed == right
    offsets, partners, numbers = layout.strips(by_row)
    along, across = (1, 0) if right else (0, 1)
    value_strides = (1, block) if transposed else (block, 1)
    return kernel_run(
        strip_kernel, (offsets.shape[0] - 1, dense.shape[across] // tile),
        values, numbers, partners, offsets, dense, out,
        *value_strides, dense.stride(along), dense.stride(across),
        out.stride(along), out.stride(across),
        BLOCK=block, TILE=tile, STEP=step, RIGHT=right, PRECISION=precision,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip


def run(kernel, grid, *args, **kwargs):
    return kernel[grid](*args, **kwargs)


def compile_only(kernel, grid, *args, **kwargs):
    return kernel.warmup(*args, grid=grid, **kwargs)
