#include <bs/lib/tensor.h>

#include <ostream>

namespace bs {

std::string to_string(const Tensor& tensor) {
  if (!tensor.defined()) return "Tensor(undefined)";
  return format("Tensor({} {} {})", tensor.dtype(), tensor.shape(), tensor.device());
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  return out << to_string(tensor);
}

}  // namespace bs
