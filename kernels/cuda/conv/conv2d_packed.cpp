#include <bs/kernels/activation_epilogue.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/cuda/conv/conv2d_packed.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace bs::cuda {

Tensor packed_image(const Tensor& image) { return contiguous(image.permute({0, 2, 3, 1})); }

PackedResult::PackedResult(const Tensor& to) : to_(to.permute({0, 2, 3, 1})) {
  in_place_ = to_.is_contiguous();
  packed_ = in_place_ ? to_ : Tensor::empty(to_.shape(), to.dtype(), to.device());
}

void PackedResult::finish(Stream stream) const {
  if (!in_place_) copy(packed_, to_, stream);
}

std::vector<Tensor> operands_of(const Conv2dEpilogue& e, const Tensor& result) {
  const int64_t columns = result.size(3), rows = result.numel() / columns;
  std::vector<Tensor> all;
  if (e.bias.defined()) all.push_back(e.bias.as_strided({1, rows, columns}, {0, 0, 1}));
  if (e.residual.defined()) all.push_back(packed_image(e.residual).view({1, rows, columns}));
  return all;
}

const Conv2dKernel& conv2d_kernel_of(const Conv2dForm& form, const Conv2dEpilogue& e) {
  using Key = std::tuple<Conv2dForm, Activation, bool, bool>;  // with a bias, with a residual
  thread_local std::map<Key, Conv2dKernel> made;
  const Key key{form, e.activation, e.bias.defined(), e.residual.defined()};
  const auto found = made.find(key);
  if (found != made.end()) return found->second;
  const Element element = element_of(form.dtype);
  epilogue::Value sum = epilogue::accumulator();
  if (e.bias.defined()) sum = sum + epilogue::row("bias", element);
  if (e.residual.defined()) sum = sum + epilogue::tensor("residual", element);
  const GemmEpilogue epilogue(epilogue::activated(e.activation, sum));
  return made.emplace(key, conv2d_kernel(form, epilogue)).first->second;
}

bool are_aligned(std::initializer_list<Tensor> tensors) {
  return std::ranges::all_of(
      tensors, [](const Tensor& t) { return reinterpret_cast<uintptr_t>(t.data()) % 16 == 0; });
}

}  // namespace bs::cuda
