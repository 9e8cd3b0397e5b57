#include <bs/kernels/cpu/parallel.h>
#include <bs/kernels/gather.h>
#include <bs/kernels/reduce_kinds.h>

namespace bs::cpu {

namespace {

/// y = is(how many of the bools are true).
template <class F>
void count_true(const Tensor& x, const Tensor& y, Stream stream, F is) {
  const Tensor counts = Tensor::empty(y.shape(), i64, y.device());
  sum(x, counts, 1, stream);
  const int64_t* const from = counts.data<int64_t>();
  bool* const out = y.data<bool>();
  for (int64_t i = 0; i < y.numel(); ++i) out[i] = is(from[i]);
}

/// What is at `places` of the middle axis.
void look_up(const Tensor& x, const Tensor& places, const Tensor& values) {
  const int64_t n = x.size(1), inner = x.size(2);
  detail::visit_bits(x.dtype(), [&]<class U>(Type<U>) {
    const auto* const from = static_cast<const U*>(x.data());
    auto* const to = static_cast<U*>(values.data());
    parallel_for(places.numel(), elementwise_grain,
                 [=, at = places.data<int64_t>()](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i)
                     to[i] = from[(i / inner * n + at[i]) * inner + i % inner];
                 });
  });
}

}  // namespace

void max_with_place(const Tensor& x, const Tensor& values, const Tensor& places, Stream stream) {
  argmax(x, places, stream);
  look_up(x, places, values);
}

void min_with_place(const Tensor& x, const Tensor& values, const Tensor& places, Stream stream) {
  argmin(x, places, stream);
  look_up(x, places, values);
}

void any_true(const Tensor& x, const Tensor& y, Stream stream) {
  count_true(x, y, stream, [](int64_t count) { return count > 0; });
}

void all_true(const Tensor& x, const Tensor& y, Stream stream) {
  count_true(x, y, stream, [n = x.size(1)](int64_t count) { return count == n; });
}

}  // namespace bs::cpu
