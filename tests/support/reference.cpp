#include <bs/kernels/copy.h>
#include <bs/tests/support/reference.h>

#include <cstring>
#include <random>

namespace bs::test {

Reference Reference::of(const Tensor& tensor) {
  Reference r(tensor.shape());
  if (r.values.empty()) return r;
  // Seen through its strides on the host, so that no kernel of ours stands between.
  int64_t extent = 1;
  for (int i = 0; i < tensor.rank(); ++i) extent += (tensor.size(i) - 1) * tensor.strides()[i];
  const Tensor host = tensor.as_strided({extent}, {1}).to(Device::cpu());
  visit_any(tensor.dtype(), [&]<class T>(Type<T>) {
    const T* data = host.data<T>();
    if (tensor.is_contiguous()) {
      for (double& value : r.values) value = static_cast<double>(*data++);
      return;
    }
    for (size_t i = 0; i < r.values.size(); ++i) {
      auto rest = static_cast<int64_t>(i);
      int64_t offset = 0;
      for (int axis = tensor.rank() - 1; axis >= 0; --axis) {
        offset += rest % tensor.size(axis) * tensor.strides()[axis];
        rest /= tensor.size(axis);
      }
      r.values[i] = static_cast<double>(data[offset]);
    }
  });
  return r;
}

Tensor Reference::tensor(DType dtype, Device device) const {
  Tensor t = Tensor::empty(shape, dtype);
  visit_any(dtype, [&]<class T>(Type<T>) {
    T* data = t.data<T>();
    for (size_t i = 0; i < values.size(); ++i) data[i] = static_cast<T>(values[i]);
  });
  return t.to(device);
}

void Reference::no_place(Index index) const {
  BS_THROW(Error, "reference: index {} in {}", Shape(index), shape);
}

Reference random_reference(const Shape& shape, uint64_t seed, double low, double high) {
  Reference r(shape);
  std::mt19937_64 generator(seed);
  for (double& v : r.values)
    v = low + (high - low) * static_cast<double>(generator() >> 11) * 0x1p-53;
  return r;
}

bool same_bits(const Tensor& x, const Tensor& y) {
  const Tensor a = contiguous(x).to(Device::cpu()), b = contiguous(y).to(Device::cpu());
  return a.shape() == b.shape() &&
         (a.bytes() == 0 || std::memcmp(a.data(), b.data(), a.bytes()) == 0);
}

}  // namespace bs::test
