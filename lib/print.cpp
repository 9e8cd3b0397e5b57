#include <bs/lib/print.h>

#include <ostream>

namespace bs {

std::ostream& operator<<(std::ostream& out, const Dims& dims) { return out << to_string(dims); }
std::ostream& operator<<(std::ostream& out, DType dtype) { return out << to_string(dtype); }
std::ostream& operator<<(std::ostream& out, Device device) { return out << to_string(device); }

}  // namespace bs
