#include <bs/kernels/copy.h>
#include <bs/kernels/cpu/strided_loop.h>

namespace bs::cpu {

namespace {

/// Conversion by way of float, which holds every 16-bit value exactly; f64 narrows through float
/// too, as PyTorch does.
template <class To, class From>
To convert(From value) {
  constexpr bool through_float = !std::is_arithmetic_v<From> || !std::is_arithmetic_v<To>;
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (through_float) {
    return static_cast<To>(static_cast<float>(value));
  } else {
    return static_cast<To>(value);
  }
}

template <class From, class To>
void copy_rows(const StridedLoop<2>& loop, const From* from, To* to) {
  const int64_t s = loop.inner_stride(0);
  const int64_t d = loop.inner_stride(1);
  for_each_row(loop, [=](const auto& offsets, int64_t at, int64_t count) {
    const From* source = from + offsets[0] + at * s;
    To* target = to + offsets[1] + at * d;
    if (s == 1 && d == 1) {
      for (int64_t i = 0; i < count; ++i) target[i] = convert<To>(source[i]);
    } else {
      for (int64_t i = 0; i < count; ++i) target[i * d] = convert<To>(source[i * s]);
    }
  });
}

}  // namespace

void copy(const Tensor& from, const Tensor& to, Stream) {
  const StridedLoop<2> loop(from.shape(), {from.strides(), to.strides()});
  visit_any(from.dtype(), [&]<class From>(Type<From>) {
    visit_any(to.dtype(),
              [&]<class To>(Type<To>) { copy_rows(loop, from.data<From>(), to.data<To>()); });
  });
}

}  // namespace bs::cpu
