#!/usr/bin/env python3
"""Peers of bench_block_sparse_matmul, on the products that its --export wrote.

    bench_block_sparse_matmul --sets sweep --size 4096 --export products.json
    python3 block_sparse_matmul.py --products products.json --dtype bf16 --json peers.json

    dense    torch.matmul on the matrices with their zeros: cuBLAS
    triton   one program a block, as one writes it; `triton stock` with the first tiles that come to
             mind, `triton tuned` with the best of a few
    stk      the kernels of the package stk where it is installed: `stk stock` through its own
             functions (blocks of 128), `stk tuned` with the best of a few tiles, any block
    bsr      torch's BSR tensors: `torch bsr` (dsd nn)
    grouped  torch._grouped_mm where the pattern is a mixture of experts (sdd nn)

f32 is what the file of products says: rounded to TF32, or as accurate as f32, which Triton does
as three products of TF32 (`tf32x3`). Each result is compared with sums in float64 before it is
timed. Times in one cell take turns.
"""

import argparse
import concurrent.futures
import json
import math
import multiprocessing
import os
import time

import block_sparse_triton as own
import measure
import torch

SAMPLES = 64
MOST_DENSE_FLOPS = 4e12  # as bench_block_sparse_matmul


class Layout:
    """A pattern of blocks on the GPU, with both orders."""

    def __init__(self, description, device="cuda"):
        self.block = description["block"]
        self.pattern = description["pattern"]
        self.block_rows, self.block_cols = description["rows"], description["cols"]
        offsets = torch.tensor(description["row_offsets"])
        cols = torch.tensor(description["columns"], dtype=torch.int64)
        self.nnz = cols.numel()
        rows = torch.repeat_interleave(torch.arange(self.block_rows), offsets.diff())
        order = torch.argsort(cols * self.block_rows + rows)
        col_offsets = torch.zeros(self.block_cols + 1, dtype=torch.int64)
        col_offsets[1:] = torch.bincount(cols, minlength=self.block_cols).cumsum(0)

        def i32(x):
            return x.to(device=device, dtype=torch.int32)

        self.rows, self.cols = i32(rows), i32(cols)
        self.offsets, self.col_offsets = i32(offsets), i32(col_offsets)
        self.numbers = i32(torch.arange(self.nnz))
        self.order, self.rows_by_col = i32(order), i32(rows[order])

    def strips(self, by_row):
        """offsets, the block index along the strip, and the number of each block."""
        if by_row:
            return self.offsets, self.cols, self.numbers
        return self.col_offsets, self.rows_by_col, self.order

    def dense(self, values):
        b = self.block
        full = values.new_zeros(self.block_rows, b, self.block_cols, b)
        full[self.rows.long(), :, self.cols.long(), :] = values
        return full.view(self.block_rows * b, self.block_cols * b)


class Problem:
    """A product and its operands; `a` and `b` are transposed views where the product says so."""

    def __init__(self, product, layout, dtype):
        self.layout = layout
        self.op, self.ta, self.tb = product["op"], product["ta"], product["tb"]
        self.width, self.batch = product["width"], product["batch"]
        b = layout.block
        height, breadth = layout.block_rows * b, layout.block_cols * b

        def random(rows, cols, transposed):
            if transposed:
                return random(cols, rows, False).transpose(-2, -1)
            return torch.randn(self.batch, rows, cols, device="cuda", dtype=dtype)

        self.values = self.full = None
        if self.op == "sdd":
            self.a = random(height, self.width, self.ta)
            self.b = random(self.width, breadth, self.tb)
        else:
            self.values = torch.randn(layout.nnz, b, b, device="cuda", dtype=dtype)
            self.full = layout.dense(self.values)
            transposed = self.ta if self.op == "dsd" else self.tb
            sparse = (self.full.t() if transposed else self.full)[None]
            rows, cols = sparse.shape[1:]
            if self.op == "dsd":
                self.a, self.b = sparse, random(cols, self.width, self.tb)
            else:
                self.a, self.b = random(self.width, rows, self.ta), sparse
        self.flops = 2.0 * layout.nnz * b * b * self.width * self.batch
        self.dense_flops = 2.0 * math.prod(self.a.shape) * self.b.shape[2]
        self._choose_samples()

    def _choose_samples(self):
        g = torch.Generator().manual_seed(0)
        if self.op == "sdd":
            p = torch.randint(max(self.layout.nnz, 1), (SAMPLES,), generator=g).cuda()
            r, c = torch.randint(self.layout.block, (2, SAMPLES), generator=g).cuda()
            self.at = (p, r, c)
            i = self.layout.rows[p] * self.layout.block + r
            j = self.layout.cols[p] * self.layout.block + c
        else:
            i = torch.randint(self.a.shape[1], (SAMPLES,), generator=g).cuda()
            j = torch.randint(self.b.shape[2], (SAMPLES,), generator=g).cuda()
            self.at = (i, j)
        self.dense_at = (i, j)
        x, y = self.a[0, i].double(), self.b[0][:, j].double().t()
        self.expected, self.size = (x * y).sum(1), (x * y).abs().sum(1)

    def check(self, result, at, low_precision):
        stored = {torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}.get(result.dtype, 2.0**-23)
        summed = 2.0**-11 if low_precision else 2.0**-24
        if result.dtype == torch.float64:
            stored, summed = 2.0**-52, 2.0**-53
        bound = math.sqrt(self.a.shape[2]) * summed * self.size + stored * self.expected.abs()
        wrong = (result[at].double() - self.expected).abs() > bound
        if wrong.any():
            raise ArithmeticError(f"{int(wrong.sum())} of {SAMPLES} sampled entries are wrong")


def allow_tf32(allowed):
    torch.backends.cuda.matmul.allow_tf32 = allowed


def tf32_allowed():
    return torch.backends.cuda.matmul.allow_tf32


def triton_works(problem, configs, kernel_run=own.run):
    """For each configuration a work and the tensor it fills."""
    layout, op = problem.layout, problem.op
    precision = "ieee"
    if problem.a.dtype == torch.float32:
        precision = "tf32" if tf32_allowed() else "tf32x3"
    works = []
    for config in configs:
        if op == "sdd":
            if problem.a.shape[2] % config[0]:
                continue
            b = layout.block
            out = problem.a.new_empty(problem.batch, layout.nnz, b, b)
            args = (config, problem.a, problem.b, out, layout, precision, kernel_run)
            works.append((lambda args=args: own.launch_sdd(*args), out[0]))
            continue
        right = op == "dds"
        dense = (problem.a if right else problem.b)[0]
        if dense.shape[0 if right else 1] % config[0]:
            continue
        out = dense.new_empty(problem.a.shape[1], problem.b.shape[2])
        transposed = problem.tb if right else problem.ta
        args = (config, problem.values, layout, dense, out, transposed, right, precision)
        works.append((lambda args=args: own.launch_strip(*args, kernel_run), out))
    return works


def configs_of(problem):
    table = own.SDD_CONFIGS if problem.op == "sdd" else own.STRIP_CONFIGS
    return table.get(problem.layout.block, [])


def compile_variant(job):
    """Fills Triton's cache, in a process of its own, with what one work of a product needs."""
    product, description, dtype, tf32, peer, index = job
    allow_tf32(tf32)
    try:
        problem = Problem(product, Layout(description), measure.DTYPES[dtype])
        if peer == "stk":
            works = stk_tuned(problem, own.compile_only)
        else:
            works = triton_works(problem, configs_of(problem), own.compile_only)
        if index < len(works):
            works[index][0]()
    except Exception:  # measured later, and reported there
        pass


def compile_ahead(products, layouts, dtype, tf32, peers, jobs):
    """Compiles a small problem for every (op, block, transposes, tiles) that will be needed."""
    start = time.perf_counter()
    wanted = {}
    for product in products:
        block = layouts[product["layout"]]["block"]
        key = (product["op"], block, product["ta"], product["tb"], product["batch"] > 1)
        small = {"block": block, "pattern": "", "rows": 16, "cols": 16, "columns": [0] * 16}
        small["row_offsets"] = list(range(17))
        fitting = {**product, "width": 256, "batch": min(product["batch"], 2)}
        for peer in {"triton", "stk"} & set(peers):
            for index in range(5):
                wanted[(*key, peer, index)] = (fitting, small, dtype, tf32, peer, index)
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=context) as pool:
        list(pool.map(compile_variant, wanted.values()))
    print(f"{len(wanted)} kernels compiled in {time.perf_counter() - start:.0f} s", flush=True)


def stk_matrix(problem):
    import stk

    layout = problem.layout
    small = torch.int16 if max(layout.block_rows, layout.block_cols) < 2**15 else torch.int32
    return stk.Matrix(
        tuple(problem.full.shape),
        problem.values,
        layout.rows.to(small),
        layout.cols.to(small),
        layout.offsets,
        layout.rows_by_col.to(small),
        layout.col_offsets,
        layout.order,
    )


def stk_stock(problem):
    """stk as its users call it: blocks of 128, two dimensions."""
    import stk

    if problem.layout.block != 128 or problem.batch != 1:
        return []
    a, b = problem.a[0], problem.b[0]
    if problem.op == "dsd":
        s = stk_matrix(problem)
        s = s.t() if problem.ta else s
        return [(lambda: stk.ops.dsd(s, b), lambda x: x)]
    if problem.op == "dds":
        s = stk_matrix(problem)
        s = s.t() if problem.tb else s
        return [(lambda: stk.ops.dds(a, s), lambda x: x)]
    full = torch.empty(a.shape[0], b.shape[1], device="meta", dtype=a.dtype)
    problem.full, problem.values = full, a.new_empty(problem.layout.nnz, 128, 128)
    topology = stk_matrix(problem)
    return [(lambda: stk.ops.sdd(a, b, topology), lambda x: x.data)]


def stk_tuned(problem, kernel_run=own.run):
    """stk's kernels with tiles of our choice, launched past its functions, which fix them."""
    import triton
    from stk.backend import triton_kernels as kernels

    if problem.batch != 1:
        return []
    layout, block = problem.layout, problem.layout.block
    a, b = problem.a[0], problem.b[0]
    rows, cols = layout.rows.to(torch.int16), layout.cols.to(torch.int16)
    common = {"GROUP_M": 128, "ACC_TYPE": triton.language.float32, "BLOCK_SIZE": block}
    works = []
    for warps, step, tile in [(4, 32, 128), (4, 64, 128), (8, 64, 128), (4, 32, 256), (8, 64, 256)]:
        if problem.op == "sdd":
            if tile > 128 or problem.width % step:
                continue
            out = a.new_empty(layout.nnz, block, block)
            works.append((lambda step=step, warps=warps, out=out: kernel_run(
                kernels._sdd_kernel.fn, (layout.nnz,), a, b, out,
                a.shape[0], b.shape[1], a.shape[1], *a.stride(), *b.stride(), block, 1,
                rows, cols, BLOCK_M=block, BLOCK_N=block, BLOCK_K=step, num_stages=3,
                num_warps=warps, **common), out))  # fmt: skip
            continue
        right = problem.op == "dds"
        dense = a if right else b
        step = min(step, block)
        if dense.shape[0 if right else 1] % tile:
            continue
        transposed = problem.tb if right else problem.ta
        out = a.new_empty(a.shape[0], b.shape[1])
        offsets, partners, numbers = layout.strips(transposed == right)
        strides = (1, block) if transposed else (block, 1)
        # Where its strips follow the stored order stk does not look the numbers up.
        lookup = transposed != right
        grid = (offsets.shape[0] - 1, dense.shape[0 if right else 1] // tile)
        kernel = kernels._dds_kernel if right else kernels._dsd_kernel
        flags = (False, not lookup) if right else (lookup, False)
        sides = (tile, block) if right else (block, tile)
        operands = (a, problem.values) if right else (problem.values, b)
        all_strides = (*a.stride(), *strides) if right else (*strides, *b.stride())
        args = (*operands, out, a.shape[0], b.shape[1], a.shape[1], *all_strides, *out.stride(),
                rows, partners.to(torch.int16), offsets, numbers, *flags)  # fmt: skip
        meta = {"BLOCK_M": sides[0], "BLOCK_N": sides[1], "BLOCK_K": step, "num_stages": 3}
        grid = grid[::-1] if right else grid
        works.append((lambda kernel=kernel, grid=grid, args=args, meta=meta, warps=warps:
                      kernel_run(kernel.fn, grid, *args, num_warps=warps, **meta, **common),
                      out))  # fmt: skip
    return works


def torch_bsr(problem):
    if problem.op != "dsd" or problem.ta or problem.tb or problem.batch != 1:
        return []
    layout = problem.layout
    bsr = torch.sparse_bsr_tensor(
        layout.offsets.long(), layout.cols.long(), problem.values, size=problem.full.shape
    )
    b = problem.b[0]
    return [(lambda: bsr @ b, lambda x: x)]


def grouped(problem):
    if problem.op != "sdd" or problem.layout.pattern != "moe" or problem.ta or problem.tb:
        return []
    # Rows of one expert follow each other, and all experts have as many columns.
    layout, block = problem.layout, problem.layout.block
    firsts = layout.cols[layout.offsets[:-1].long().clamp(max=layout.nnz - 1)]
    starts, counts = firsts.unique_consecutive(return_counts=True)
    if len(starts) < 2 or problem.a.dtype != torch.bfloat16:
        return []
    width = int(starts[1] - starts[0]) * block
    weights = problem.b[0].view(-1, len(starts), width).transpose(0, 1).contiguous()
    offsets = (counts.cumsum(0) * block).int()
    a = problem.a[0]
    return [(lambda: torch._grouped_mm(a, weights, offs=offsets), None)]


class Bench:
    def __init__(self, arguments, record, timer):
        self.arguments, self.record, self.timer = arguments, record, timer

    def candidates(self, problem):
        """(name, works) of every peer asked for: the best of its works counts."""
        asked = self.arguments.peers
        if "triton" in asked:
            works = triton_works(problem, configs_of(problem))
            yield "triton stock", lambda: works[:1]
            yield "triton tuned", lambda: works[1:]
        if "stk" in asked:
            yield "stk stock", lambda: stk_stock(problem)
            yield "stk tuned", lambda: stk_tuned(problem)
        if "bsr" in asked:
            yield "torch bsr", lambda: torch_bsr(problem)
        if "grouped" in asked:
            yield "torch grouped", lambda: grouped(problem)

    def best(self, problem, works):
        """The fastest right one, or None."""
        fastest, failure = None, None
        for work, result in works:
            try:
                returned = work()
                if result is not None:
                    got = result(returned) if callable(result) else result
                    problem.check(got, problem.at, tf32_allowed())
                seconds = self.timer.median(work, 3) if len(works) > 1 else 0
                if fastest is None or seconds < fastest[0]:
                    fastest = (seconds, work)
            except Exception as error:  # a configuration that does not fit the GPU, for example
                failure = error
        if fastest is None and failure is not None:
            raise failure
        return fastest and fastest[1]

    def measure(self, product, layout):
        problem = Problem(product, layout, measure.DTYPES[self.arguments.dtype])
        names, works = [], []
        if "dense" in self.arguments.peers and problem.dense_flops <= MOST_DENSE_FLOPS:
            problem.check((problem.a @ problem.b)[0], problem.dense_at, tf32_allowed())
            names.append("torch dense")
            works.append(lambda: problem.a @ problem.b)
        for name, make in self.candidates(problem):
            try:
                work = self.best(problem, make())
            except Exception as error:
                self.record.add_failure(product["cell"], product["what"], name, error)
                continue
            if work is not None:
                names.append(name)
                works.append(work)
        times = self.timer.interleave(works)
        for name, seconds in zip(names, times):
            self.record.add(product["cell"], product["what"], name, seconds, problem.flops)
        line = ", ".join(
            f"{name} {1e-12 * problem.flops / seconds[len(seconds) // 2]:.0f}"
            for name, seconds in zip(names, times)
        )
        cell = product["cell"]
        print(f"{cell['set']} {cell['pattern']} block {cell['block']} density {cell['density']} "
              f"{product['what']}: TF {line}", flush=True)  # fmt: skip


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--products", required=True, help="file of --export")
    parser.add_argument("--dtype", choices=measure.DTYPES, default="bf16")
    parser.add_argument("--peers", default="dense,triton,stk,bsr,grouped")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=min(12, os.cpu_count()), help="for compiling")
    parser.add_argument("--json", help="writes the figures")
    parser.add_argument("--commit", default="unknown")
    arguments = parser.parse_args()
    arguments.peers = arguments.peers.split(",")
    if "stk" in arguments.peers:
        try:
            import stk  # noqa: F401
        except ImportError:
            print("stk is not installed; without it")
            arguments.peers.remove("stk")
    return arguments


def main():
    arguments = parse_arguments()
    with open(arguments.products) as file:
        exported = json.load(file)
    products, descriptions = exported["products"], exported["layouts"]
    tf32 = arguments.dtype == "f32" and exported["tf32"]
    allow_tf32(tf32)
    record = measure.Record("block_sparse_matmul", arguments.dtype, arguments.commit)
    compile_ahead(
        products, descriptions, arguments.dtype, tf32, arguments.peers, arguments.jobs
    )
    bench = Bench(arguments, record, measure.Timer(arguments.runs))
    index, layout = None, None
    for product in products:
        if product["layout"] != index:  # products come layout by layout
            index, layout = product["layout"], Layout(descriptions[product["layout"]])
        bench.measure(product, layout)
        if arguments.json:  # what is measured so far outlives a time limit
            record.write(arguments.json)


if __name__ == "__main__":
    main()
