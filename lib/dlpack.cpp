#include <bs/lib/dlpack.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>

namespace bs::dlpack {

// The layout that the standard has on 64-bit machines.
static_assert(sizeof(View) == 48 && offsetof(View, shape) == 24 && sizeof(Managed) == 80 &&
              offsetof(Managed, view) == 32 && sizeof(Unversioned) == 64);

namespace {

struct Named {
  DType dtype;
  DataType type;
};
constexpr Named types[] = {
    {DType::boolean, {TypeCode::boolean, 8, 1}}, {DType::u8, {TypeCode::unsigned_integer, 8, 1}},
    {DType::i32, {TypeCode::integer, 32, 1}},    {DType::i64, {TypeCode::integer, 64, 1}},
    {DType::f16, {TypeCode::real, 16, 1}},       {DType::bf16, {TypeCode::bfloat, 16, 1}},
    {DType::f32, {TypeCode::real, 32, 1}},       {DType::f64, {TypeCode::real, 64, 1}}};

/// What an exported tensor holds on to: memory, extents, and the structure itself.
template <class M>
struct Exported {
  Tensor tensor;
  Shape shape;
  Strides strides;
  M managed{};
};

template <class M>
M* exported(const Tensor& tensor) {
  BS_CHECK(tensor.defined(), "to_dlpack: an undefined tensor");
  auto kept = std::make_unique<Exported<M>>();
  kept->tensor = tensor;
  kept->shape = tensor.shape();
  kept->strides = tensor.strides();
  View& view = kept->managed.view;
  view.data = tensor.numel() == 0 ? nullptr : tensor.data();
  const bs::Device device = tensor.device();
  view.device = {device.is_cuda() ? DeviceCode::cuda : DeviceCode::cpu, device.index()};
  view.rank = tensor.rank();
  for (const Named& n : types)
    if (n.dtype == tensor.dtype()) view.dtype = n.type;
  view.shape = kept->shape.begin();
  view.strides = kept->strides.begin();
  kept->managed.context = kept.get();
  kept->managed.deleter = [](M* self) { delete static_cast<Exported<M>*>(self->context); };
  return &kept.release()->managed;
}

DType dtype_of_view(const View& view) {
  const DataType& t = view.dtype;
  for (const Named& n : types)
    if (n.type.code == t.code && n.type.bits == t.bits && t.lanes == 1) return n.dtype;
  BS_THROW(Error, "from_dlpack: elements of code {}, {} bits and {} lanes have no dtype",
           static_cast<int>(t.code), static_cast<int>(t.bits), static_cast<int>(t.lanes));
}

bs::Device device_of_view(const View& view) {
  switch (view.device.type) {
    case DeviceCode::cpu:
    case DeviceCode::cuda_host:
      return bs::Device::cpu();
    case DeviceCode::cuda:
    case DeviceCode::cuda_managed:
      return bs::Device::cuda(view.device.index);
    default:
      BS_THROW(Error, "from_dlpack: device {} is not supported",
               static_cast<int>(view.device.type));
  }
}

template <class M>
Tensor imported(M* managed) {
  const View& view = managed->view;
  BS_CHECK(view.rank >= 0 && view.rank <= Dims::max_rank, "from_dlpack: {} axes; {} are the most",
           view.rank, Dims::max_rank);
  const DType dtype = dtype_of_view(view);
  const bs::Device device = device_of_view(view);
  check_usable("from_dlpack", device);
  const auto rank = static_cast<size_t>(view.rank);
  const Shape shape(std::span<const int64_t>(view.shape, rank));
  const Strides strides = view.strides ? Strides(std::span<const int64_t>(view.strides, rank))
                                       : contiguous_strides(shape);
  // All that may be refused is refused here: what from_blob has taken over it also releases.
  __extension__ using Wide = __int128;
  constexpr int64_t too_much = std::numeric_limits<int64_t>::max() / 8;
  Wide span = 1;  // elements from the first to the last in memory
  for (int i = 0; i < shape.rank(); ++i) {
    BS_CHECK(shape[i] >= 0 && (strides[i] >= 0 || shape[i] < 2),
             "from_dlpack: shape {} with strides {}", shape, strides);
    span = std::min<Wide>(span + Wide{std::max<int64_t>(shape[i] - 1, 0)} * strides[i], too_much);
  }
  if (shape.product() == 0) span = 0;
  BS_CHECK(span < too_much, "from_dlpack: shape {} with strides {} is of no tensor", shape,
           strides);
  char* const data = view.data ? static_cast<char*>(view.data) + view.byte_offset : nullptr;
  return Tensor::from_blob(data, {static_cast<int64_t>(span)}, dtype, device,
                           [managed] {
                             if (managed->deleter) managed->deleter(managed);
                           })
      .as_strided(shape, strides);
}

}  // namespace

Managed* to_dlpack(const Tensor& tensor) {
  Managed* managed = exported<Managed>(tensor);
  managed->version = {1, 0};
  return managed;
}

Unversioned* to_dlpack_unversioned(const Tensor& tensor) { return exported<Unversioned>(tensor); }

Tensor from_dlpack(Managed* managed) {
  BS_CHECK(managed->version.major == 1, "from_dlpack: version {}.{} is not understood",
           managed->version.major, managed->version.minor);
  BS_CHECK((managed->flags & Managed::read_only) == 0, "from_dlpack: the memory is read-only");
  return imported(managed);
}

Tensor from_dlpack(Unversioned* managed) { return imported(managed); }

}  // namespace bs::dlpack
