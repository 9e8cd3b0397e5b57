#include <bs/c/gemm.h>

#include <bs/c/handle.h>
#include <bs/kernels/gemm_operation.h>

#include <array>

struct bs_gemm {
  bs::GemmOperation value;
  bool has_c, has_bias;
};

namespace bs::c {

namespace {

constexpr const char* making = "bs_gemm_make";

/// A number of the C interface as one of the first `count` of an enumeration.
template <class E>
E choice(const char* what, int number, int count) {
  BS_CHECK(number >= 0 && number < count, "{}: {} {}; it is 0 to {}", making, what, number,
           count - 1);
  return static_cast<E>(number);
}

static_assert(BS_ELEMENT_E5M2 == static_cast<int>(Element::e5m2));
static_assert(BS_WARPGROUP == static_cast<int>(OpClass::warpgroup));
static_assert(BS_FAST_F32 == static_cast<int>(MathOperation::fast_f32));
static_assert(BS_STREAM_K == static_cast<int>(Swizzle::stream_k));
static_assert(BS_SPLIT_PARALLEL == static_cast<int>(SplitK::parallel));

Element element(const char* what, int number) {
  return choice<Element>(what, number, BS_ELEMENT_E5M2 + 1);
}

TensorDescription matrix(const char* name, const bs_gemm_matrix& m) {
  return {element(name, m.element),
          m.column_major != 0 ? MatrixLayout::column_major : MatrixLayout::row_major, m.alignment};
}

epilogue::Value activated(const epilogue::Value& x, int activation) {
  switch (choice<bs_activation>("activation", activation, BS_HARDSWISH + 1)) {
    case BS_RELU:
      return epilogue::relu(x);
    case BS_TANH:
      return epilogue::tanh(x);
    case BS_SIGMOID:
      return epilogue::sigmoid(x);
    case BS_SILU:
      return epilogue::silu(x);
    case BS_GELU:
      return epilogue::gelu(x);
    case BS_GELU_TANH:
      return epilogue::gelu_tanh(x);
    case BS_HARDSWISH:
      return epilogue::hardswish(x);
    case BS_IDENTITY:
      break;
  }
  return x;
}

GemmEpilogue epilogue_of(const bs_gemm_description& d) {
  epilogue::Value y = epilogue::scalar("alpha") * epilogue::accumulator();
  if (d.c_element != BS_NO_ELEMENT)
    y = y + epilogue::scalar("beta") * epilogue::tensor("c", element("c_element", d.c_element));
  if (d.bias_element != BS_NO_ELEMENT)
    y = y + epilogue::row("bias", element("bias_element", d.bias_element));
  return GemmEpilogue(activated(y, d.activation));
}

std::array<int, 3> three(const int (&numbers)[3]) { return {numbers[0], numbers[1], numbers[2]}; }

GemmDescription described(const bs_gemm_description& d) {
  const auto given = [](int n) { return n == 0 ? 1 : n; };
  GemmDescription made;
  made.tile.threadblock = three(d.threadblock);
  made.tile.stages = d.stages;
  made.tile.warps = three(d.warps);
  made.tile.cluster = {given(d.cluster[0]), given(d.cluster[1])};
  made.tile.cluster_k = given(d.cluster_k);
  made.tile.math = {three(d.instruction),
                    element("math_a", d.math_a),
                    element("math_b", d.math_b),
                    element("accumulator", d.accumulator),
                    choice<OpClass>("op_class", d.op_class, BS_WARPGROUP + 1),
                    choice<MathOperation>("operation", d.operation, BS_FAST_F32 + 1)};
  made.a = matrix("a", d.a);
  made.b = matrix("b", d.b);
  made.d = matrix("d", d.d);
  made.epilogue = epilogue_of(d);
  made.swizzle = choice<Swizzle>("swizzle", d.swizzle, BS_STREAM_K + 1);
  made.split_k = choice<SplitK>("split_k", d.split_k, BS_SPLIT_PARALLEL + 1);
  made.mode = d.batched != 0 ? GemmMode::batched : GemmMode::gemm;
  return made;
}

GemmArguments arguments_of(const char* op, const bs_gemm& gemm, const bs_gemm_arguments& a) {
  GemmArguments made{.a = value(op, "a", a.a), .b = value(op, "b", a.b), .d = value(op, "d", a.d)};
  made.slices = a.slices == 0 ? 1 : a.slices;
  made.scalars["alpha"] = a.alpha;
  BS_CHECK(gemm.has_c || (a.c == nullptr && a.beta == 0),
           "{}: a matrix c, or beta {}, for a description without c_element", op, a.beta);
  BS_CHECK(gemm.has_bias == (a.bias != nullptr),
           "{}: the description has {} bias, the arguments {}", op, gemm.has_bias ? "a" : "no",
           a.bias != nullptr ? "one" : "none");
  if (gemm.has_c) made.scalars["beta"] = a.beta;
  if (a.c != nullptr) made.tensors["c"] = a.c->value;
  if (a.bias != nullptr) made.tensors["bias"] = a.bias->value;
  return made;
}

/// Elements from the first to the last one of a view.
int64_t span_of(const char* op, const Shape& shape, const Strides& strides) {
  int64_t last = 0;
  for (int i = 0; i < shape.rank(); ++i) {
    BS_CHECK(shape[i] >= 0 && strides[i] >= 0, "{}: shape {}, strides {}", op, shape, strides);
    if (shape[i] == 0) return 0;
    int64_t along = 0;
    BS_CHECK(!__builtin_mul_overflow(shape[i] - 1, strides[i], &along) &&
                 !__builtin_add_overflow(last, along, &last) && last < (int64_t{1} << 60),
             "{}: shape {}, strides {}", op, shape, strides);
  }
  return last + 1;
}

}  // namespace

}  // namespace bs::c

using namespace bs::c;

bs_status bs_gemm_make(const bs_gemm_description* description, bs_gemm** out) {
  return guarded([&] {
    place(making, out);
    BS_CHECK(description != nullptr, "{}: description is NULL", making);
    auto made = std::make_unique<bs_gemm>(bs_gemm{bs::GemmOperation(described(*description)),
                                                  description->c_element != BS_NO_ELEMENT,
                                                  description->bias_element != BS_NO_ELEMENT});
    *out = made.release();
  });
}

bs_status bs_gemm_run(const bs_gemm* gemm, const bs_gemm_arguments* arguments) {
  return guarded([&] {
    const char* op = "bs_gemm_run";
    BS_CHECK(gemm != nullptr, "{}: gemm is NULL", op);
    BS_CHECK(arguments != nullptr, "{}: arguments is NULL", op);
    gemm->value.run(arguments_of(op, *gemm, *arguments));
  });
}

void bs_gemm_free(bs_gemm* gemm) { delete gemm; }

bs_status bs_tensor_from_pointer(const bs_tensor_info* info, bs_tensor** out) {
  return guarded([&] {
    const char* op = "bs_tensor_from_pointer";
    place(op, out);
    BS_CHECK(info != nullptr, "{}: info is NULL", op);
    const auto dtype = dtype_of_number(op, info->dtype);
    BS_CHECK(info->rank >= 0 && info->rank <= BS_MAX_RANK, "{}: {} axes; {} are the most", op,
             info->rank, BS_MAX_RANK);
    const auto rank = static_cast<size_t>(info->rank);
    const bs::Shape shape(std::span<const int64_t>(info->shape, rank));
    const bs::Strides strides(std::span<const int64_t>(info->strides, rank));
    const int64_t elements = span_of(op, shape, strides);
    BS_CHECK(info->data != nullptr || elements == 0, "{}: data is NULL", op);
    const bs::Device device =
        info->cuda_device < 0 ? bs::Device::cpu() : bs::Device::cuda(info->cuda_device);
    check_usable(op, device);
    auto made = handle(
        bs::Tensor::from_blob(info->data, {elements}, dtype, device).as_strided(shape, strides));
    give(out, made);
  });
}
