#include <bs/kernels/eigh.h>

#include <bs/kernels/copy.h>

namespace bs {

Eigh eigh(const Tensor& a) { return detail::eigh("eigh", "", a); }

Eigh detail::eigh(const char* op, const std::string& of, const Tensor& a) {
  const DType dtype = a.dtype();
  if (dtype != f32 && dtype != f64) unsupported_dtype(op, dtype, "f32 or f64");
  BS_CHECK(a.rank() >= 2 && a.size(-1) == a.size(-2) && a.size(-1) > 0,
           "{}: {} is no square matrix, nor a batch of them", op, a.shape());
  const int64_t n = a.size(-1), count = a.numel() / (n * n);
  Shape rows;
  for (int i = 0; i + 1 < a.rank(); ++i) rows.push_back(a.size(i));
  const Tensor host = contiguous(cast(contiguous(a).to(Device::cpu()), f64)).view({count, n, n});
  const Tensor values = Tensor::empty({count, n}, f64), vectors = Tensor::empty(host.shape(), f64);
  cpu::eigh(op, of, host, values, vectors);
  return {cast(values.view(rows), dtype).to(a.device()),
          cast(vectors.view(a.shape()), dtype).to(a.device())};
}

}  // namespace bs
