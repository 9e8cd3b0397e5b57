#include <bs/c/handle.h>
#include <bs/lib/dlpack.h>

#include <array>

namespace bs::c {

namespace {

constexpr std::array dtypes{boolean, u8, i32, i64, f16, bf16, f32, f64};
static_assert(BS_BOOLEAN == 0 && BS_F64 == dtypes.size() - 1 && BS_MAX_RANK == Dims::max_rank);

template <class Managed>
void import(const char* op, Managed* managed, bs_tensor** out) {
  place(op, out);
  BS_CHECK(managed != nullptr, "{}: the tensor given is NULL", op);
  auto made = std::make_unique<bs_tensor>();
  made->value = dlpack::from_dlpack(managed);
  *out = made.release();
}

}  // namespace

DType dtype_of_number(const char* op, int dtype) {
  BS_CHECK(static_cast<size_t>(dtype) < dtypes.size(), "{}: dtype {}", op, dtype);
  return dtypes[static_cast<size_t>(dtype)];
}

}  // namespace bs::c

using namespace bs::c;

bs_status bs_tensor_from_dlpack(DLManagedTensorVersioned* managed, bs_tensor** out) {
  return guarded([&] {
    import("bs_tensor_from_dlpack", reinterpret_cast<bs::dlpack::Managed*>(managed), out);
  });
}

bs_status bs_tensor_from_dlpack_unversioned(DLManagedTensor* managed, bs_tensor** out) {
  return guarded([&] {
    import("bs_tensor_from_dlpack_unversioned", reinterpret_cast<bs::dlpack::Unversioned*>(managed),
           out);
  });
}

bs_status bs_tensor_to_dlpack(const bs_tensor* t, DLManagedTensorVersioned** out) {
  return guarded([&] {
    place("bs_tensor_to_dlpack", out);
    *out = reinterpret_cast<DLManagedTensorVersioned*>(
        bs::dlpack::to_dlpack(value("bs_tensor_to_dlpack", "the tensor", t)));
  });
}

bs_status bs_tensor_to_dlpack_unversioned(const bs_tensor* t, DLManagedTensor** out) {
  return guarded([&] {
    place("bs_tensor_to_dlpack_unversioned", out);
    *out = reinterpret_cast<DLManagedTensor*>(bs::dlpack::to_dlpack_unversioned(
        value("bs_tensor_to_dlpack_unversioned", "the tensor", t)));
  });
}

bs_status bs_tensor_from_memory(void* data, int dtype, int rank, const int64_t* shape,
                                bs_tensor** out) {
  return guarded([&] {
    const char* op = "bs_tensor_from_memory";
    place(op, out);
    const bs::DType elements = dtype_of_number(op, dtype);
    BS_CHECK(rank >= 0 && rank <= BS_MAX_RANK, "{}: {} axes; {} are the most", op, rank,
             BS_MAX_RANK);
    BS_CHECK(shape != nullptr || rank == 0, "{}: shape is NULL", op);
    const bs::Shape extents(std::span<const int64_t>(shape, static_cast<size_t>(rank)));
    for (const int64_t extent : extents)
      BS_CHECK(extent >= 0, "{}: shape {} has a negative extent", op, extents);
    BS_CHECK(data != nullptr || extents.product() == 0, "{}: data is NULL", op);
    auto made = handle(bs::Tensor::from_blob(data, extents, elements));
    give(out, made);
  });
}

bs_status bs_tensor_describe(const bs_tensor* t, bs_tensor_info* out) {
  return guarded([&] {
    const bs::Tensor& x = value("bs_tensor_describe", "the tensor", t);
    BS_CHECK(out != nullptr, "bs_tensor_describe: the place of a result is NULL");
    *out = bs_tensor_info{};
    out->dtype = static_cast<int>(x.dtype());
    out->cuda_device = x.device().is_cuda() ? x.device().index() : -1;
    out->rank = x.rank();
    for (int i = 0; i < x.rank(); ++i) {
      out->shape[i] = x.shape()[i];
      out->strides[i] = x.strides()[i];
    }
    out->data = x.numel() == 0 ? nullptr : x.data();
  });
}

void bs_tensor_free(bs_tensor* t) { delete t; }
