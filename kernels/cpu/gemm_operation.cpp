#include <bs/kernels/cpu/gemm.h>
#include <bs/kernels/cpu/gemm_epilogue.h>
#include <bs/kernels/cpu/gemm_rounding.h>
#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/gemm_operation.h>

#include <algorithm>

namespace bs::cpu {

namespace {

using epilogue::Reduction;

/// Calls f with a function that reads an element of a tensor, as a double.
template <class F>
void with_reader(Element element, const Tensor& t, F&& f) {
  switch (element) {
    case Element::i8:
      return f([p = t.data<uint8_t>()](int64_t i) -> double { return static_cast<int8_t>(p[i]); });
    case Element::i32:
      return f([p = t.data<int32_t>()](int64_t i) -> double { return p[i]; });
    case Element::e4m3:
    case Element::e5m2:
      return f([p = t.data<uint8_t>(), element](int64_t i) -> double {
        return decode_fp8(p[i], element);
      });
    default:
      visit_floating("gemm", t.dtype(), [&]<class T>(Type<T>) {
        f([p = t.data<T>()](int64_t i) { return static_cast<double>(p[i]); });
      });
  }
}

/// A matrix of one product, dense and row by row, as the multiplier gets it.
std::vector<double> gather(const MathInstruction& math, Element element, const Tensor& t) {
  const int64_t rows = t.size(0), columns = t.size(1);
  std::vector<double> out(static_cast<size_t>(rows * columns));
  with_reader(element, t, [&](const auto& read) {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        out[static_cast<size_t>(i * columns + j)] =
            multiplied(math, read(i * t.strides()[0] + j * t.strides()[1]));
  });
  return out;
}

/// Adds part of a row to the reductions, in the order of its elements.
template <class W>
void reduce(const GemmEpilogue& e, const GemmTensors& p, const EpilogueRows<W>& rows,
            EpiloguePlace at, int64_t count) {
  const auto larger = [](W x, W y) { return x > y || x != x ? x : y; };
  for (size_t r = 0; r < e.reductions().size(); ++r) {
    const Reduction& reduction = e.reductions()[r];
    const Tensor& t = p.reductions[r];
    const W* values = rows.values(reduction.step);
    for (int64_t j = 0; j < count; ++j) {
      const int64_t i = at.row, column = at.column + j;
      W& total = t.data<W>()[at.batch * t.size(1) + (reduction.over_columns ? i : column)];
      if ((reduction.over_columns ? column : i) == 0) {
        total = values[j];
      } else {
        total = reduction.is_max ? larger(total, values[j]) : total + values[j];
      }
    }
  }
}

template <class W>
void run(const GemmDescription& d, const GemmTensors& p, const std::vector<double>& scalars) {
  std::vector<double> sums(static_cast<size_t>(p.m * p.n));
  EpilogueRows<W> rows(d.epilogue, p.operands, scalars);
  for (int64_t batch = 0; batch < p.batch; ++batch) {
    std::fill(sums.begin(), sums.end(), 0.0);
    if (p.k > 0) {
      const std::vector<double> a = gather(d.tile.math, d.a.element, p.a.select(0, batch));
      const std::vector<double> b = gather(d.tile.math, d.b.element, p.b.select(0, batch));
      gemm<double, double, double>({.m = p.m, .n = p.n, .k = p.k}, {a.data(), 0, p.k},
                                   {b.data(), 0, p.n}, 0.0, {sums.data(), 0, p.n});
    }
    for (double& sum : sums) sum = accumulated(d.tile.math, sum);
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; j += EpilogueRows<W>::most) {
        const int64_t count = std::min(p.n - j, EpilogueRows<W>::most);
        const EpiloguePlace at{batch, i, j};
        rows.run(at, at, count, &sums[static_cast<size_t>(i * p.n + j)]);
        reduce(d.epilogue, p, rows, at, count);
      }
  }
}

}  // namespace

void gemm_operation(const GemmLaunch& launch, Stream) {
  const GemmDescription& d = launch.operation->description();
  for (const GemmTensors& p : launch.products) {
    if (d.tile.math.accumulator == Element::f64) {
      run<double>(d, p, launch.scalars);
    } else {
      run<float>(d, p, launch.scalars);
    }
  }
}

}  // namespace bs::cpu
