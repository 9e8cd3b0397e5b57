#include <bs/lib/dlpack.h>
#include <bs/tests/fuzz/harness.h>

#include <algorithm>
#include <vector>

using namespace bs;

namespace {

/// What another library hands over. Its extents are believed, so nothing reads the elements.
struct Given {
  dlpack::Managed managed{};
  std::vector<int64_t> shape, strides;
  int freed = 0;

  explicit Given(std::string_view bytes) {
    managed.version = fuzz::take<dlpack::Managed::Version>(bytes);
    managed.flags = fuzz::take<uint8_t>(bytes);
    dlpack::View& view = managed.view;
    view.device = fuzz::take<dlpack::Device>(bytes);
    view.dtype = fuzz::take<dlpack::DataType>(bytes);
    view.rank = fuzz::take<int8_t>(bytes);
    const bool strided = fuzz::take<uint8_t>(bytes) % 2 != 0;
    const bool null = fuzz::take<uint8_t>(bytes) % 2 != 0;
    view.byte_offset = fuzz::take<uint16_t>(bytes);
    shape.resize(static_cast<size_t>(std::max(view.rank, 0)));
    strides.resize(shape.size());
    for (int64_t& extent : shape) extent = fuzz::take<int64_t>(bytes);
    for (int64_t& stride : strides) stride = fuzz::take<int64_t>(bytes);
    view.shape = shape.data();
    view.strides = strided ? strides.data() : nullptr;
    view.data = null ? nullptr : this;
    managed.context = this;
    managed.deleter = [](dlpack::Managed* self) { ++static_cast<Given*>(self->context)->freed; };
  }
};

}  // namespace

BS_HARNESS(dlpack) {
  Given given(bytes);
  {
    Tensor tensor;
    if (!fuzz::takes([&] { tensor = dlpack::from_dlpack(&given.managed); })) {
      fuzz::require(given.freed == 0, "what is refused is still the caller's");
      return;
    }
    fuzz::require(std::ranges::equal(tensor.shape(), given.shape), "the shape is what was given");
    dlpack::Managed* const again = dlpack::to_dlpack(tensor);
    fuzz::require(again->view.rank == given.managed.view.rank, "the rank is what was given");
    tensor = {};
    fuzz::require(given.freed == 0, "memory is kept while it is shared");
    again->deleter(again);
  }
  fuzz::require(given.freed == 1, "memory is given back once");
}
