#include <bs/kernels/inverse.h>

#include <bs/kernels/copy.h>

namespace bs {

Inverse inverse(const Tensor& a) { return detail::inverse("inverse", "", a); }

Inverse detail::inverse(const char* op, const std::string& of, const Tensor& a) {
  const DType dtype = a.dtype();
  if (dtype != f32 && dtype != f64) unsupported_dtype(op, dtype, "f32 or f64");
  BS_CHECK(a.rank() >= 2 && a.size(-1) == a.size(-2) && a.size(-1) > 0,
           "{}: {} is no square matrix, nor a batch of them", op, a.shape());
  const int64_t n = a.size(-1), count = a.numel() / (n * n);
  Shape batch;
  for (int i = 0; i + 2 < a.rank(); ++i) batch.push_back(a.size(i));
  const Tensor host = contiguous(cast(contiguous(a).to(Device::cpu()), f64)).view({count, n, n});
  const Tensor matrix = Tensor::empty({count, n, n}, f64), sign = Tensor::empty({count}, f64),
               log_abs_det = Tensor::empty({count}, f64);
  cpu::inverse(op, of, host, matrix, sign, log_abs_det);
  const auto result = [&](const Tensor& t, const Shape& shape) {
    return cast(t.view(shape), dtype).to(a.device());
  };
  return {result(matrix, a.shape()), result(sign, batch), result(log_abs_det, batch)};
}

}  // namespace bs
