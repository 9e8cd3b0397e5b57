#include <bs/lib/host_view.h>

namespace bs {

Tensor host_view(const Tensor& tensor) {
  if (tensor.device().is_cpu()) return tensor;
  if (tensor.is_contiguous()) return tensor.to(Device::cpu());
  int64_t first = 0;  // the span of memory relative to element [0, ..., 0]
  int64_t last = 0;
  for (int axis = 0; axis < tensor.rank(); ++axis) {
    const int64_t reach = (tensor.size(axis) - 1) * tensor.strides()[axis];
    (reach < 0 ? first : last) += reach;
  }
  const Tensor span = tensor.as_strided({last - first + 1}, {1}, first).to(Device::cpu());
  return span.as_strided(tensor.shape(), tensor.strides(), -first);
}

Tensor host_copy(const Tensor& tensor) {
  Tensor host = host_view(tensor);
  if (host.is_contiguous()) return host;
  Tensor copy = Tensor::empty(host.shape(), host.dtype());
  visit_any(host.dtype(), [&]<class T>(Type<T>) {
    T* to = copy.data<T>();
    for_each_value<T>(host, [&](const T& value) { *to++ = value; });
  });
  return copy;
}

}  // namespace bs
