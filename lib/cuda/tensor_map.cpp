#include <bs/lib/cuda/check.h>
#include <bs/lib/cuda/encoded_maps.h>
#include <bs/lib/cuda/tensor_map.h>
#include <cuda.h>
#include <cudaTypedefs.h>

#include <cstring>
#include <string>

namespace bs::cuda {

namespace {

struct ElementFacts {
  CUtensorMapDataType type;
  int bytes;
};

ElementFacts facts(TensorMapElement element) {
  switch (element) {
    case TensorMapElement::u8:
      return {CU_TENSOR_MAP_DATA_TYPE_UINT8, 1};
    case TensorMapElement::u16:
      return {CU_TENSOR_MAP_DATA_TYPE_UINT16, 2};
    case TensorMapElement::u32:
      return {CU_TENSOR_MAP_DATA_TYPE_UINT32, 4};
    case TensorMapElement::i32:
      return {CU_TENSOR_MAP_DATA_TYPE_INT32, 4};
    case TensorMapElement::u64:
      return {CU_TENSOR_MAP_DATA_TYPE_UINT64, 8};
    case TensorMapElement::f16:
      return {CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2};
    case TensorMapElement::bf16:
      return {CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2};
    case TensorMapElement::f32:
      return {CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4};
    case TensorMapElement::tf32:
      return {CU_TENSOR_MAP_DATA_TYPE_TFLOAT32, 4};
    case TensorMapElement::f64:
      break;
  }
  return {CU_TENSOR_MAP_DATA_TYPE_FLOAT64, 8};
}

int span_of(TensorMapSwizzle swizzle) {
  constexpr int bytes[] = {0, 32, 64, 128};
  return bytes[static_cast<int>(swizzle)];
}

template <class T, size_t N>
std::string list(const std::array<T, N>& values, int rank) {
  std::string text = "[";
  for (int i = 0; i < rank; ++i)
    text += format("{}{}", i == 0 ? "" : ", ", values[static_cast<size_t>(i)]);
  return text + "]";
}

/// A function of the driver that is here, without linking it.
template <class Function>
Function driver_function(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  BS_CUDA_CHECK(
      cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &result));
#else
  BS_CUDA_CHECK(cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &result));
#endif
  if (result != cudaDriverEntryPointSuccess || !function)
    BS_THROW(CudaError, "tensor_map: the driver is too old: it has no {}", name);
  return reinterpret_cast<Function>(function);
}

/// The upper corner of the base pixels, from the far end of the images.
int upper_corner(const Im2colTensor& t, size_t axis) {
  return t.first[axis] + (t.count[axis] - 1) * t.step[axis] -
         static_cast<int>(t.dims[axis + 1] - 1);
}

TensorMap as_map(const CUtensorMap& map) {
  TensorMap out;
  static_assert(sizeof out == sizeof map);
  std::memcpy(&out, &map, sizeof out);
  return out;
}

}  // namespace

void check_tiled(const char* op, const TiledTensor& t) {
  BS_CHECK(t.rank >= 1 && t.rank <= 5, "{}: TMA takes 1 to 5 dimensions, not {}", op, t.rank);
  BS_CHECK(t.address && reinterpret_cast<uintptr_t>(t.address) % 16 == 0,
           "{}: TMA wants an address that is a multiple of 16 bytes, not {}", op,
           reinterpret_cast<uintptr_t>(t.address));
  for (size_t i = 0; i < static_cast<size_t>(t.rank); ++i) {
    BS_CHECK(t.dims[i] >= 1 && t.dims[i] <= int64_t{1} << 32,
             "{}: TMA takes dimensions of 1 to 2^32 elements: dims {}", op, list(t.dims, t.rank));
    BS_CHECK(i == 0 || (t.strides[i] >= 0 && t.strides[i] < int64_t{1} << 40),
             "{}: TMA takes strides of 0 to 2^40 bytes: strides {}", op, list(t.strides, t.rank));
    BS_CHECK(i == 0 || t.strides[i] % 16 == 0,
             "{}: TMA wants strides that are multiples of 16 bytes: strides {}", op,
             list(t.strides, t.rank));
    BS_CHECK(t.box[i] >= 1 && t.box[i] <= 256, "{}: a TMA box has 1 to 256 elements a side: box {}",
             op, list(t.box, t.rank));
  }
  const int line = t.box[0] * facts(t.element).bytes;
  BS_CHECK(line % 16 == 0, "{}: a line of a TMA box must be a multiple of 16 bytes: {} x {} bytes",
           op, t.box[0], facts(t.element).bytes);
  BS_CHECK(t.swizzle == TensorMapSwizzle::none || line <= span_of(t.swizzle),
           "{}: a line of a TMA box must fit the swizzle: {} x {} bytes, swizzle of {} bytes", op,
           t.box[0], facts(t.element).bytes, span_of(t.swizzle));
}

namespace {

/// Checks and asks the driver.
TensorMap encode_anew(const char* op, const TiledTensor& t) {
  check_tiled(op, t);
  std::array<cuuint64_t, 5> dims{}, strides{};
  std::array<cuuint32_t, 5> box{}, steps{};
  for (size_t i = 0; i < 5; ++i) {
    dims[i] = static_cast<cuuint64_t>(t.dims[i]);
    if (i > 0) strides[i - 1] = static_cast<cuuint64_t>(t.strides[i]);
    box[i] = static_cast<cuuint32_t>(t.box[i]);
    steps[i] = 1;
  }
  alignas(CUtensorMap) CUtensorMap map{};
  static const auto encode =
      driver_function<PFN_cuTensorMapEncodeTiled_v12000>("cuTensorMapEncodeTiled");
  const CUresult status =
      encode(&map, facts(t.element).type, static_cast<cuuint32_t>(t.rank),
             const_cast<void*>(t.address), dims.data(), strides.data(), box.data(), steps.data(),
             CU_TENSOR_MAP_INTERLEAVE_NONE, static_cast<CUtensorMapSwizzle>(t.swizzle),
             static_cast<CUtensorMapL2promotion>(t.promotion), CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS)
    BS_THROW(CudaError, "{}: cuTensorMapEncodeTiled: error {}: dims {}, strides {}, box {}", op,
             static_cast<int>(status), list(t.dims, t.rank), list(t.strides, t.rank),
             list(t.box, t.rank));
  return as_map(map);
}

}  // namespace

TensorMap encode_tiled(const char* op, const TiledTensor& t) {
  thread_local EncodedMaps maps;
  return maps.get(t, [&] { return encode_anew(op, t); });
}

bool fits_im2col(const Im2colTensor& t) {
  if (reinterpret_cast<uintptr_t>(t.address) % 16 != 0) return false;
  for (size_t i = 0; i < 4; ++i)
    if (t.dims[i] < 1 || t.dims[i] >= int64_t{1} << 31 ||
        (i > 0 && (t.strides[i] % 16 != 0 || t.strides[i] < 0 || t.strides[i] >= int64_t{1} << 40)))
      return false;
  for (size_t i = 0; i < 2; ++i) {
    const int upper = upper_corner(t, i);
    if (t.first[i] < -128 || t.first[i] > 127 || upper < -128 || upper > 127 || t.step[i] < 1 ||
        t.step[i] > 8)
      return false;
  }
  const int bytes = t.channels * facts(t.element).bytes;
  return t.channels >= 1 && t.channels <= 256 && t.pixels >= 1 && t.pixels <= 1024 &&
         bytes % 16 == 0 && (t.swizzle == TensorMapSwizzle::none || bytes <= span_of(t.swizzle));
}

TensorMap encode_im2col(const char* op, const Im2colTensor& t) {
  BS_CHECK(fits_im2col(t), "{}: TMA cannot walk images of {} in steps of {} from {} on", op,
           list(t.dims, 4), list(t.step, 2), list(t.first, 2));
  std::array<cuuint64_t, 4> dims{}, strides{};
  std::array<cuuint32_t, 4> steps{1, static_cast<cuuint32_t>(t.step[0]),
                                  static_cast<cuuint32_t>(t.step[1]), 1};
  const std::array<int, 2> lower = t.first, upper{upper_corner(t, 0), upper_corner(t, 1)};
  for (size_t i = 0; i < 4; ++i) {
    dims[i] = static_cast<cuuint64_t>(t.dims[i]);
    if (i > 0) strides[i - 1] = static_cast<cuuint64_t>(t.strides[i]);
  }
  static const auto encode =
      driver_function<PFN_cuTensorMapEncodeIm2col_v12000>("cuTensorMapEncodeIm2col");
  alignas(CUtensorMap) CUtensorMap map{};
  const CUresult status =
      encode(&map, facts(t.element).type, 4, const_cast<void*>(t.address), dims.data(),
             strides.data(), lower.data(), upper.data(), static_cast<cuuint32_t>(t.channels),
             static_cast<cuuint32_t>(t.pixels), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
             static_cast<CUtensorMapSwizzle>(t.swizzle),
             static_cast<CUtensorMapL2promotion>(t.promotion), CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS)
    BS_THROW(CudaError, "{}: cuTensorMapEncodeIm2col: error {}: dims {}, corners {} and {}", op,
             static_cast<int>(status), list(t.dims, 4), list(lower, 2), list(upper, 2));
  return as_map(map);
}

}  // namespace bs::cuda
