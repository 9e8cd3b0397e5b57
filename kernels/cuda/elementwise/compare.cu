#include <bs/kernels/compare.h>
#include <bs/kernels/cuda/elementwise.cuh>

namespace bs::cuda {

namespace {

// Of bools four at a time too: a word has four bytes of 0 or 1.
constexpr uint32_t ones = 0x01010101;

struct Equal {
  template <class W>
  __device__ bool operator()(W a, W b) const {
    return a == b;
  }
  __device__ uint32_t words(uint32_t a, uint32_t b) const { return a ^ b ^ ones; }
};
struct NotEqual {
  template <class W>
  __device__ bool operator()(W a, W b) const {
    return a != b;
  }
  __device__ uint32_t words(uint32_t a, uint32_t b) const { return a ^ b; }
};
struct Less {
  template <class W>
  __device__ bool operator()(W a, W b) const {
    return a < b;
  }
  __device__ uint32_t words(uint32_t a, uint32_t b) const { return ~a & b; }
};
struct LessOrEqual {
  template <class W>
  __device__ bool operator()(W a, W b) const {
    return a <= b;
  }
  __device__ uint32_t words(uint32_t a, uint32_t b) const { return (a ^ ones) | b; }
};

template <class F>
void compare(const char* op, F f, const Operand& a, const Operand& b, const Tensor& y,
             Stream stream) {
  const DType dtype = a.tensor.defined() ? a.tensor.dtype() : b.tensor.dtype();
  const auto run = [&]<class T>(Type<T>) { map<bool, T, T>(op, f, y, stream, a, b); };
  if (is_floating(dtype)) {
    visit_floating(op, dtype, run);
  } else if (dtype == boolean) {
    run(Type<bool>{});
  } else if (dtype == u8) {
    run(Type<uint8_t>{});
  } else {
    visit_index(op, dtype, run);
  }
}

}  // namespace

void eq(const Operand& a, const Operand& b, const Tensor& y, Stream stream) {
  compare("eq", Equal{}, a, b, y, stream);
}

void ne(const Operand& a, const Operand& b, const Tensor& y, Stream stream) {
  compare("ne", NotEqual{}, a, b, y, stream);
}

void lt(const Operand& a, const Operand& b, const Tensor& y, Stream stream) {
  compare("lt", Less{}, a, b, y, stream);
}

void le(const Operand& a, const Operand& b, const Tensor& y, Stream stream) {
  compare("le", LessOrEqual{}, a, b, y, stream);
}

}  // namespace bs::cuda
