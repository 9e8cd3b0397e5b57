#include <bs/kernels/gemm_operation.h>

#include <bs/kernels/fill.h>
#include <bs/lib/overlap.h>

#include <cstdio>

namespace bs {

namespace {

using epilogue::Operand;
using epilogue::Reduction;
using epilogue::Step;

void check_dtype(const char* name, const Tensor& t, Element element) {
  BS_CHECK(t.defined(), "gemm: {} is missing", name);
  BS_CHECK(t.dtype() == storage_dtype(element), "gemm: {} is a tensor of {}; {} lies in {}", name,
           t.dtype(), element, storage_dtype(element));
}

/// [batch, rows, columns] of a matrix that may leave the batch out.
Tensor with_batch(const char* name, const Tensor& t, int64_t batch, int64_t rows, int64_t columns) {
  const bool shared = t.rank() == 2;
  const Shape expected = shared ? Shape{rows, columns} : Shape{batch, rows, columns};
  BS_CHECK(t.shape() == expected, "gemm: {} has shape {}; expected {}", name, t.shape(), expected);
  return (shared ? t.unsqueeze(0) : t).expand({batch, rows, columns});
}

/// Throws unless elements lie as described: one axis dense, the other at aligned steps.
void check_layout(const char* name, const Tensor& t, const TensorDescription& described) {
  const bool rows = described.layout == MatrixLayout::row_major;
  const int along = rows ? -1 : -2, across = rows ? -2 : -1;
  const int64_t ld = t.strides()[across];
  BS_CHECK(t.size(along) == 1 || t.strides()[along] == 1,
           "gemm: {} is not {}: shape {}, strides {}", name, described.layout, t.shape(),
           t.strides());
  BS_CHECK(t.size(across) == 1 || ld >= t.size(along),
           "gemm: the leading dimension of {} is {}, less than its {} elements", name, ld,
           t.size(along));
  const auto aligned = [&](int64_t value) { return value % described.alignment == 0; };
  BS_CHECK(t.size(across) == 1 || aligned(ld),
           "gemm: the leading dimension of {} is {}; the description says a multiple of {}", name,
           ld, described.alignment);
  BS_CHECK(t.size(0) == 1 || aligned(t.strides()[0]),
           "gemm: the batch stride of {} is {}; the description says a multiple of {}", name,
           t.strides()[0], described.alignment);
  const auto address = reinterpret_cast<uintptr_t>(t.data());
  const auto bytes =
      static_cast<size_t>(described.alignment) * static_cast<size_t>(size_of(described.element));
  BS_CHECK(address % bytes == 0, "gemm: the address of {} is not a multiple of {} bytes", name,
           bytes);
}

/// A vector of the epilogue as a matrix [batch, m, n].
Tensor vector_operand(const std::string& name, const Tensor& t, const GemmTensors& p, bool is_row) {
  const int64_t length = is_row ? p.n : p.m;
  const bool shared = t.rank() == 1;
  const Shape expected = shared ? Shape{length} : Shape{p.batch, length};
  BS_CHECK(t.shape() == expected, "gemm: {} has shape {}; expected {}", name, t.shape(), expected);
  const Tensor batched = shared ? t.unsqueeze(0) : t;
  return batched.unsqueeze(is_row ? 1 : 2).expand({p.batch, p.m, p.n});
}

/// A product and the names of its tensors that were used.
class Resolver {
 public:
  Resolver(const GemmDescription& description, const GemmArguments& arguments,
           const std::vector<double>& scalars)
      : d_(description), arguments_(arguments), scalars_(scalars) {}

  GemmTensors resolve() {
    check_dtype("a", arguments_.a, d_.a.element);
    check_dtype("b", arguments_.b, d_.b.element);
    check_dtype("d", arguments_.d, d_.d.element);
    sizes();
    p_.a = with_batch("a", arguments_.a, p_.batch, p_.m, p_.k);
    p_.b = with_batch("b", arguments_.b, p_.batch, p_.k, p_.n);
    if (p_.k > 0) {
      check_layout("a", p_.a, d_.a);
      check_layout("b", p_.b, d_.b);
    }
    for (size_t i = 0; i < d_.epilogue.operands().size(); ++i)
      p_.operands.push_back(operand(static_cast<int>(i)));
    check_layout("d", p_.operands.front(), d_.d);
    for (const Reduction& r : d_.epilogue.reductions()) p_.reductions.push_back(reduction(r));
    for (const auto& [name, tensor] : arguments_.tensors) known(name);
    check_outputs();
    return p_;
  }

 private:
  void sizes() {
    const Tensor& a = arguments_.a;
    const Tensor& b = arguments_.b;
    const Tensor& out = arguments_.d;
    const bool batched = d_.mode == GemmMode::batched;
    BS_CHECK(out.rank() == (batched ? 3 : 2), "gemm: d has shape {}; {} products are {}",
             out.shape(), d_.mode, batched ? "[batch, m, n]" : "[m, n]");
    for (const Tensor* t : {&a, &b})
      BS_CHECK(t->rank() == 2 || (batched && t->rank() == 3), "gemm: a {} and b {} are no matrices",
               a.shape(), b.shape());
    BS_CHECK(a.size(-1) == b.size(-2), "gemm: inner dimensions differ: a {}, b {}", a.shape(),
             b.shape());
    p_.batch = batched ? out.size(0) : 1;
    p_.m = out.size(-2);
    p_.n = out.size(-1);
    p_.k = a.size(-1);
    for (const int64_t extent : {p_.batch, p_.m, p_.n, p_.k})
      BS_CHECK(extent <= (int64_t{1} << 30), "gemm: an extent of {}; at most 2^30", extent);
    check_same_device("gemm", a, b);
    check_same_device("gemm", a, out);
  }

  Tensor operand(int index) {
    const Operand& o = d_.epilogue.operands()[static_cast<size_t>(index)];
    if (index == 0) return with_batch("d", arguments_.d, p_.batch, p_.m, p_.n);
    const auto found = arguments_.tensors.find(o.name);
    if (found == arguments_.tensors.end() && o.stored < 0 &&
        !reads(d_.epilogue, static_cast<size_t>(index), scalars_))
      return {};
    BS_CHECK(found != arguments_.tensors.end(), "gemm: the epilogue's tensor '{}' is missing",
             o.name);
    const Tensor& t = found->second;
    check_dtype(o.name.c_str(), t, o.element);
    check_same_device("gemm", t, arguments_.d);
    if (o.kind != Operand::Kind::tensor)
      return vector_operand(o.name, t, p_, o.kind == Operand::Kind::row);
    BS_CHECK(o.stored < 0 || t.rank() == arguments_.d.rank(),
             "gemm: {} has shape {}; it is stored, and needs that of d {}", o.name, t.shape(),
             arguments_.d.shape());
    return with_batch(o.name.c_str(), t, p_.batch, p_.m, p_.n);
  }

  Tensor reduction(const Reduction& r) {
    const auto found = arguments_.tensors.find(r.name);
    BS_CHECK(found != arguments_.tensors.end(), "gemm: the epilogue's reduction '{}' is missing",
             r.name);
    const Tensor& t = found->second;
    const bool f64 = d_.tile.math.accumulator == Element::f64;
    check_dtype(r.name.c_str(), t, f64 ? Element::f64 : Element::f32);
    check_same_device("gemm", t, arguments_.d);
    const int64_t length = r.over_columns ? p_.m : p_.n;
    const bool batched = d_.mode == GemmMode::batched;
    const Shape expected = batched ? Shape{p_.batch, length} : Shape{length};
    BS_CHECK(t.shape() == expected && t.is_contiguous(),
             "gemm: {} has shape {}, strides {}; expected {}, dense", r.name, t.shape(),
             t.strides(), expected);
    return t.view({p_.batch, length});
  }

  /// Throws where an output lies over what is read: elements are written while others are read.
  /// Only a matrix of the epilogue may be an output itself, as each element is read before it is
  /// written.
  void check_outputs() const {
    const auto& operands = d_.epilogue.operands();
    std::vector<std::pair<const char*, const Tensor*>> outputs,
        inputs = {{"a", &p_.a}, {"b", &p_.b}};
    for (size_t i = 0; i < operands.size(); ++i) {
      const bool stored = i == 0 || operands[i].stored >= 0;
      if (stored || (p_.operands[i].defined() && reads(d_.epilogue, i, scalars_)))
        (stored ? outputs : inputs).emplace_back(operands[i].name.c_str(), &p_.operands[i]);
    }
    for (size_t i = 0; i < p_.reductions.size(); ++i)
      outputs.emplace_back(d_.epilogue.reductions()[i].name.c_str(), &p_.reductions[i]);
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Tensor& output = *outputs[i].second;
      for (size_t j = 0; j < i; ++j)
        BS_CHECK(!may_share_elements(output, *outputs[j].second), "gemm: {} overlaps {}",
                 outputs[i].first, outputs[j].first);
      for (size_t j = 0; j < inputs.size(); ++j)
        BS_CHECK(!may_share_elements(output, *inputs[j].second) ||
                     (j >= 2 && same_elements(output, *inputs[j].second)),
                 "gemm: {} overlaps {}, which is read while it is written", outputs[i].first,
                 inputs[j].first);
    }
  }

  void known(const std::string& name) const {
    for (const Operand& o : d_.epilogue.operands())
      if (o.name == name && name != "d") return;
    for (const Reduction& r : d_.epilogue.reductions())
      if (r.name == name) return;
    BS_THROW(Error, "gemm: the epilogue has no tensor '{}'; it is\n{}", name,
             bs::to_string(d_.epilogue));
  }

  const GemmDescription& d_;
  const GemmArguments& arguments_;
  const std::vector<double>& scalars_;
  GemmTensors p_;
};

/// Reductions over nothing. True when there is nothing else to do.
bool finish_empty(const GemmTensors& p, const GemmEpilogue& e) {
  if (p.batch * p.m * p.n > 0) return false;
  for (size_t i = 0; i < p.reductions.size(); ++i) {
    if (p.reductions[i].numel() == 0) continue;
    BS_CHECK(!e.reductions()[i].is_max, "gemm: {} is a maximum of nothing", e.reductions()[i].name);
    fill(p.reductions[i], 0);
  }
  return true;
}

}  // namespace

std::string kernel_key(const std::string& name, const std::string& text) {
  uint64_t hash = 14695981039346656037U;  // FNV-1a, 64 bits
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return name + "_" + digits;
}

GemmOperation::GemmOperation(GemmDescription description) : description_(std::move(description)) {
  description_.epilogue.set_d(description_.d.element);
  check(description_);
  source_ = bs::to_source(description_);
  // What the text does not tell: how many slices there may be is a matter of the host.
  const std::string host = format("{} {}", description_.mode, description_.split_k);
  key_ = kernel_key(kernel_name(description_), source_ + host);
}

void GemmOperation::run(const GemmArguments& arguments) const {
  run(std::span<const GemmArguments>(&arguments, 1));
}

static Work work_of(const GemmLaunch& launch) {
  Work work;
  for (const GemmTensors& p : launch.products) {
    const auto matrix = static_cast<double>(p.batch) * static_cast<double>(p.m);
    work.flops += 2 * matrix * static_cast<double>(p.n) * static_cast<double>(p.k);
    work.bytes += static_cast<double>(p.a.bytes() + p.b.bytes());
    for (const Tensor& operand : p.operands)
      if (operand.defined()) work.bytes += static_cast<double>(operand.bytes());
  }
  return work;
}

void GemmOperation::run(std::span<const GemmArguments> products) const {
  const bool several =
      description_.mode == GemmMode::array || description_.mode == GemmMode::grouped;
  BS_CHECK(several || products.size() == 1, "gemm: {} products; {} takes one", products.size(),
           description_.mode);
  if (products.empty()) return;
  GemmLaunch launch;
  launch.operation = this;
  launch.scalars = scalars_of("gemm", description_.epilogue, products.front().scalars);
  launch.slices = products.front().slices;
  BS_CHECK(launch.slices >= 1 && (launch.slices == 1 || description_.split_k != SplitK::none),
           "gemm: {} slices of the depth; the description's split_k is {}", launch.slices,
           description_.split_k);
  for (const GemmArguments& one : products) {
    check_same_device("gemm", one.d, products.front().d);
    BS_CHECK(description_.mode != GemmMode::array || one.d.shape() == products.front().d.shape(),
             "gemm: an array of products of one shape: d {} and {}", products.front().d.shape(),
             one.d.shape());
    GemmTensors p = Resolver(description_, one, launch.scalars).resolve();
    if (!finish_empty(p, description_.epilogue)) launch.products.push_back(std::move(p));
  }
  if (launch.products.empty()) return;
  BS_DISPATCH_WORK(products.front().d.device(), work_of(launch), gemm_operation, launch);
}

}  // namespace bs
