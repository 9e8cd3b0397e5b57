#pragma once
/** @file Tensors handed to and taken from other libraries without a copy, by DLPack 1.0
 *  (https://dmlc.github.io/dlpack). The structures have the standard's layout: cast pointers to and
 *  from its own `DLManagedTensorVersioned` and `DLManagedTensor`. */
#include <bs/lib/tensor.h>

namespace bs::dlpack {

enum class DeviceCode : int32_t { cpu = 1, cuda = 2, cuda_host = 3, cuda_managed = 13 };
enum class TypeCode : uint8_t {
  integer = 0,
  unsigned_integer = 1,
  real = 2,
  bfloat = 4,
  boolean = 6
};

struct Device {
  DeviceCode type;
  int32_t index;
};
struct DataType {
  TypeCode code;
  uint8_t bits;
  uint16_t lanes;
};
/** @brief DLTensor. */
struct View {
  void* data;
  Device device;
  int32_t rank;
  DataType dtype;
  int64_t* shape;
  int64_t* strides;  ///< in elements; null: row-major
  uint64_t byte_offset;
};
/** @brief DLManagedTensorVersioned, which protocol versions from 1.0 on pass. */
struct Managed {
  struct Version {
    uint32_t major, minor;
  };
  static constexpr uint64_t read_only = 1;  ///< a flag

  Version version;
  void* context;
  void (*deleter)(Managed* self);
  uint64_t flags;
  View view;
};
/** @brief DLManagedTensor, which earlier versions pass. */
struct Unversioned {
  View view;
  void* context;
  void (*deleter)(Unversioned* self);
};

/** @brief A new owner of the tensor's memory. Whoever takes it calls its deleter, once, on any
 *  thread. Work under way on a GPU is not waited for: share a stream, or synchronise.
 *  @throws Error for an undefined tensor. */
Managed* to_dlpack(const Tensor& tensor);
Unversioned* to_dlpack_unversioned(const Tensor& tensor);

/** @brief A tensor over the memory given, which is taken over: the deleter runs when the last view
 *  is gone. Elements of several lanes, unknown types and devices are refused, and so is what is
 *  read-only; what was given is then still the caller's.
 *  @throws Error saying which. */
Tensor from_dlpack(Managed* managed);
Tensor from_dlpack(Unversioned* managed);

}  // namespace bs::dlpack
