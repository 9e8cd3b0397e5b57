#include <bs/kernels/block_sparse_matmul.h>
#include <bs/kernels/cuda/block_sparse/block_sparse_matmul_dense.h>
#include <bs/kernels/cuda/block_sparse/block_sparse_matmul_tf32.h>
#include <bs/kernels/cuda/block_sparse/block_sparse_matmul_tiled.h>
#include <bs/kernels/cuda/block_sparse/block_sparse_matmul_warpgroup.h>
#include <bs/kernels/cuda/block_sparse/block_sparse_reach.h>
#include <bs/kernels/cuda/block_sparse/turned_operand.h>
#include <bs/kernels/cuda/gpu/work_time.h>

namespace bs::cuda {

namespace {

void run_dsd(const DsdWork& work, const Tensor& values, const Tensor& b, const Tensor& c,
             const DsdProblem& p, Stream stream) {
  switch (work.plan.path) {
    case Path::dense:
      return dense_dsd(work, values, b, c, p, stream);
    case Path::warpgroup:
      return warpgroup_dsd(work, values, b, c, p, stream);
    case Path::tf32:
      return tf32_dsd(work, values, b, c, p, stream);
    case Path::blocks:
    case Path::tiled:
      return tiled_dsd(work, values, b, c, p, stream);
  }
}

void run_sdd(const SddWork& work, const Tensor& a, const Tensor& b, const Tensor& values,
             const SddProblem& p, Stream stream) {
  switch (work.plan.path) {
    case Path::dense:
      return dense_sdd(a, b, values, p, stream);
    case Path::blocks:
      return dense_blocks(a, b, values, p, stream);
    case Path::warpgroup:
      return warpgroup_sdd(work, a, b, values, p, stream);
    case Path::tf32:
      return tf32_sdd(work, a, b, values, p, stream);
    case Path::tiled:
      return tiled_sdd(work, a, b, values, p, stream);
  }
}

}  // namespace

// A product is a shape, whose plan is made once for its layout; what the plan says is done here.

// With BS_TUNE the first of its kind is computed by several plans, into the same result.

void dsd(const Tensor& values, const Tensor& b, const Tensor& c, const DsdProblem& p,
         Stream stream) {
  visit_floating("dsd", b.dtype(), [](auto) {});  // kernels can be emitted for these alone
  const auto run = [&](const DsdWork& work) {
    if (!work.plan.turns) return run_dsd(work, values, b, c, p, stream);
    const auto q = with_long_lines(p, b, stream);
    run_dsd(work, values, q.b, c, q.problem, stream);
  };
  run(*dsd_work(*p.pattern, dsd_shape(values, b, c, p), stream,
                [&](const DsdWork& work) { return time_of(stream, [&] { run(work); }); }));
}

void sdd(const Tensor& a, const Tensor& b, const Tensor& values, const SddProblem& p,
         Stream stream) {
  visit_floating("sdd", a.dtype(), [](auto) {});
  const auto run = [&](const SddWork& work) {
    SddProblem q = p;
    Tensor left = a, right = b;
    if (work.plan.turns_a) {
      left = turn(a.transpose(-2, -1), stream);
      q.a = {.row = p.k, .col = 1};
    }
    if (work.plan.turns_b) {
      right = turn(b, stream).transpose(-2, -1);
      q.b = {.row = 1, .col = p.k};
    }
    run_sdd(work, left, right, values, q, stream);
  };
  run(*sdd_work(*p.pattern, sdd_shape(a, b, values, p), stream,
                [&](const SddWork& work) { return time_of(stream, [&] { run(work); }); }));
}

}  // namespace bs::cuda
