#include <bs/kernels/logic.h>

#include <bs/kernels/cpu/elementwise.h>
#include <bs/kernels/reduce_kinds.h>

#include <cmath>
#include <limits>

namespace bs::cpu {

namespace {

template <class W>
struct Close {
  W rtol, atol;
  bool equal_nan;

  // No branch, so that the loop is vectorised.
  bool operator()(W a, W b) const {
    const bool near = std::abs(a - b) <= atol + rtol * std::abs(b);
    const bool finite = std::abs(b) < std::numeric_limits<W>::infinity();
    return (a == b) | (near & finite) | (equal_nan & (a != a) & (b != b));
  }
};

/// Of integers, whose difference is exact before it is compared.
struct CloseIntegers {
  double rtol, atol;

  template <class W>
  bool operator()(W a, W b) const {
    const auto p = static_cast<uint64_t>(a), q = static_cast<uint64_t>(b);
    const auto apart = static_cast<double>(a > b ? p - q : q - p);
    return (a == b) | (apart <= atol + rtol * std::abs(static_cast<double>(b)));
  }
};

}  // namespace

void all_close(const Tensor& a, const Tensor& b, const CloseOptions& options, const Tensor& close,
               Stream stream) {
  const char* op = "allclose";
  const DType dtype = a.dtype();
  const Tensor each = Tensor::empty(a.shape(), boolean, a.device());
  const CloseIntegers integers{options.rtol, options.atol};
  if (is_floating(dtype)) {
    visit_wide(op, dtype, [&]<class W>(Type<W>) {
      const Close<W> f{static_cast<W>(options.rtol), static_cast<W>(options.atol),
                       options.equal_nan};
      map<bool, W, W>(f, each, a, b);
    });
  } else if (dtype == boolean) {
    map<bool, bool, bool>(integers, each, a, b);
  } else if (dtype == u8) {
    map<bool, uint8_t, uint8_t>(integers, each, a, b);
  } else {
    visit_index(op, dtype, [&]<class W>(Type<W>) { map<bool, W, W>(integers, each, a, b); });
  }
  all_true(each.view({1, each.numel(), 1}), close.view({1, 1}), stream);
}

}  // namespace bs::cpu
