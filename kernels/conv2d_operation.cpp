#include <bs/kernels/conv2d_operation.h>

#include <bs/kernels/gemm_operation.h>

namespace bs {

namespace {

using epilogue::Operand;

constexpr const char* op = "conv2d_operation";

/// [n][h][w][c] of an image or of filters.
Tensor packed(const std::string& name, const Tensor& t, Element element) {
  BS_CHECK(t.defined(), "{}: {} is missing", op, name);
  BS_CHECK(t.dtype() == storage_dtype(element), "{}: {} is a tensor of {}; {} lies in {}", op, name,
           t.dtype(), element, storage_dtype(element));
  BS_CHECK(t.rank() == 4, "{}: {} {} is no image and no filters", op, name, t.shape());
  Tensor last = t.permute({0, 2, 3, 1});
  BS_CHECK(last.is_contiguous(), "{}: {} {} with strides {} is not dense and channels-last", op,
           name, t.shape(), t.strides());
  return last;
}

void check_alignment(const char* name, const Tensor& t, const Conv2dOperand& described) {
  BS_CHECK(t.size(3) % described.alignment == 0,
           "{}: {} has {} channels; the description says a multiple of {}", op, name, t.size(3),
           described.alignment);
  const auto bytes =
      static_cast<size_t>(described.alignment) * static_cast<size_t>(size_of(described.element));
  BS_CHECK(reinterpret_cast<uintptr_t>(t.data()) % bytes == 0,
           "{}: the address of {} is not a multiple of {} bytes", op, name, bytes);
}

/// What the iterator and the stride support ask of a problem.
void check_problem(const Conv2dDescription& d, const Conv2dProblem& p) {
  BS_CHECK(p.groups == 1, "{}: {} groups; conv2d has them", op, p.groups);
  BS_CHECK(d.stride == StrideSupport::strided || p.stride == (Extent2{1, 1}),
           "{}: a stride of {}x{}; the description says unit", op, p.stride.h, p.stride.w);
  const int64_t depth = d.tile.threadblock[2];
  switch (d.iterator) {
    case Conv2dIterator::fixed_channels:
      BS_CHECK(p.c == d.a.alignment, "{}: {} channels; fixed_channels takes the alignment of a, {}",
               op, p.c, d.a.alignment);
      break;
    case Conv2dIterator::few_channels:
      BS_CHECK(p.c < depth, "{}: {} channels; few_channels takes less than a stage's depth of {}",
               op, p.c, depth);
      break;
    case Conv2dIterator::optimized:
      BS_CHECK(d.tile.math.op_class != OpClass::warpgroup || d.kind != Conv2dKind::wgrad ||
                   p.c % 64 == 0,
               "{}: {} channels; wgrad on warpgroups takes multiples of 64", op, p.c);
      break;
    case Conv2dIterator::analytic:
      break;
  }
}

/// One run, its tensors checked.
class Resolver {
 public:
  Resolver(const Conv2dOperation& operation, const Conv2dArguments& arguments)
      : d_(operation.description()), arguments_(arguments) {
    launch_.operation = &operation;
    launch_.scalars = scalars_of(op, d_.epilogue, arguments.scalars);
    launch_.slices = arguments.slices;
  }

  Conv2dLaunch resolve() {
    BS_CHECK(launch_.slices >= 1 && (launch_.slices == 1 || d_.split_k != SplitK::none),
             "{}: {} slices of the depth; the description's split_k is {}", op, launch_.slices,
             d_.split_k);
    launch_.a = packed("a", arguments_.a, d_.a.element);
    launch_.b = packed("b", arguments_.b, d_.b.element);
    launch_.d = packed("d", arguments_.d, d_.d.element);
    check_same_device(op, arguments_.a, arguments_.b);
    check_same_device(op, arguments_.a, arguments_.d);
    sizes();
    check_problem(d_, launch_.problem);
    check_alignment("a", launch_.a, d_.a);
    check_alignment("b", launch_.b, d_.b);
    check_alignment("d", launch_.d, d_.d);
    const bool filters = d_.kind == Conv2dKind::wgrad;
    const Shape& shape = launch_.d.shape();
    rows_ = filters ? shape[0] : shape[0] * shape[1] * shape[2];
    columns_ = filters ? shape[1] * shape[2] * shape[3] : shape[3];
    for (size_t i = 0; i < d_.epilogue.operands().size(); ++i)
      launch_.operands.push_back(i == 0 ? matrix(launch_.d) : operand(i));
    for (const auto& [name, tensor] : arguments_.tensors) known(name);
    return launch_;
  }

 private:
  void sizes() {
    const Tensor& image = d_.kind == Conv2dKind::fprop   ? arguments_.a
                          : d_.kind == Conv2dKind::dgrad ? arguments_.d
                                                         : arguments_.b;
    const Tensor& filters = d_.kind == Conv2dKind::wgrad ? arguments_.d : arguments_.b;
    const Tensor& pixels = d_.kind == Conv2dKind::fprop ? arguments_.d : arguments_.a;
    launch_.problem = conv2d_problem(op, image.shape(), filters.shape(), arguments_.options);
    const Conv2dProblem& p = launch_.problem;
    const Shape y{p.n, p.k, p.p, p.q};
    BS_CHECK(pixels.shape() == y, "{}: x {} and weight {} make y {}, not {}", op, image.shape(),
             filters.shape(), y, pixels.shape());
    BS_CHECK(p.n > 0 || d_.kind != Conv2dKind::wgrad,
             "{}: an empty batch has no gradient of filters", op);
  }

  Tensor matrix(const Tensor& t) const { return t.view({1, rows_, columns_}); }

  Tensor operand(size_t index) const {
    const Operand& o = d_.epilogue.operands()[index];
    const auto found = arguments_.tensors.find(o.name);
    if (found == arguments_.tensors.end() && o.stored < 0 &&
        !reads(d_.epilogue, index, launch_.scalars))
      return {};
    BS_CHECK(found != arguments_.tensors.end(), "{}: the epilogue's tensor '{}' is missing", op,
             o.name);
    const Tensor& t = found->second;
    check_same_device(op, t, arguments_.d);
    if (o.kind == Operand::Kind::tensor) {
      BS_CHECK(t.shape() == arguments_.d.shape(), "{}: {} has shape {}; expected that of d {}", op,
               o.name, t.shape(), arguments_.d.shape());
      return matrix(packed(o.name, t, o.element));
    }
    const bool is_row = o.kind == Operand::Kind::row;
    const int64_t length = is_row ? columns_ : rows_;
    BS_CHECK(t.dtype() == storage_dtype(o.element) && t.shape() == Shape{length},
             "{}: {} is a tensor of {} {}; expected {} [{}]", op, o.name, t.dtype(), t.shape(),
             storage_dtype(o.element), length);
    return t.unsqueeze(is_row ? 0 : 1).unsqueeze(0).expand({1, rows_, columns_});
  }

  void known(const std::string& name) const {
    for (const Operand& o : d_.epilogue.operands())
      if (o.name == name && name != "d") return;
    BS_THROW(Error, "{}: the epilogue has no tensor '{}'; it is\n{}", op, name,
             bs::to_string(d_.epilogue));
  }

  const Conv2dDescription& d_;
  const Conv2dArguments& arguments_;
  Conv2dLaunch launch_;
  int64_t rows_ = 0, columns_ = 0;
};

}  // namespace

Conv2dOperation::Conv2dOperation(Conv2dDescription description)
    : description_(std::move(description)) {
  description_.epilogue.set_d(description_.d.element);
  check(description_);
  const GemmDescription product = gemm_of(description_);
  source_ = to_conv2d_source(description_.kind, product, loads_of(description_));
  // What the text does not tell: how many slices there may be is a matter of the host.
  key_ = kernel_key(conv2d_name(description_.kind, product),
                    source_ + to_string(description_.split_k));
}

void Conv2dOperation::run(const Conv2dArguments& arguments) const {
  const Conv2dLaunch launch = Resolver(*this, arguments).resolve();
  if (launch.d.numel() == 0) return;
  BS_DISPATCH(arguments.d.device(), conv2d_operation, launch);
}

}  // namespace bs
