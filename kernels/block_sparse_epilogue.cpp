#include <bs/kernels/block_sparse_epilogue.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/dispatch.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/strided.h>

#include <algorithm>
#include <limits>

namespace bs {

namespace {

using epilogue::Operand;
using epilogue::Reduction;

Shape joined(Shape front, const Shape& back) {
  for (const int64_t extent : back) front.push_back(extent);
  return front;
}

/// `t`, whose last `inner` axes are an operand's own, the axes before them spread over `lead` and
/// made one. It is a view, or a copy where no one stride steps through them.
Tensor batched(const Tensor& t, const Shape& lead, int inner) {
  const Shape own = t.shape().slice(t.rank() - inner, t.rank());
  Tensor x = t.expand(joined(lead, own));
  StridedLoop<1> loop(lead, {x.strides().slice(0, lead.rank())});
  if (loop.rank > 1) {
    x = contiguous(x);
    loop = StridedLoop<1>(lead, {x.strides().slice(0, lead.rank())});
  }
  Strides strides{loop.numel() == 1 ? 0 : loop.strides[0][0]};
  for (const int64_t stride : x.strides().slice(lead.rank(), x.rank())) strides.push_back(stride);
  return x.as_strided(joined({lead.product()}, own), strides);
}

/// The result of a product: dense, or the values of a layout.
struct Result {
  const Tensor& tensor;
  const Layout* layout = nullptr;  ///< null: dense

  int inner() const { return layout ? 3 : 2; }  ///< axes after the leading ones
  Shape lead() const { return tensor.shape().slice(0, tensor.rank() - inner()); }
  int64_t m() const { return layout ? layout->height() : tensor.size(-2); }
  int64_t n() const { return layout ? layout->width() : tensor.size(-1); }
  /// Leading axes of what has one number a row or a column of each matrix.
  Shape matrices() const {
    Shape shape = lead();
    if (layout && layout->heads() > 1) shape.push_back(layout->heads());
    return shape;
  }
};

class Resolver {
 public:
  Resolver(const char* op, const ProductOptions& options, const Result& result)
      : op_(op), options_(options), result_(result) {}

  BlockSparseEpilogue resolve() const {
    BlockSparseEpilogue e{*options_.epilogue, {}, {}};
    for (const int64_t extent : {result_.m(), result_.n(), result_.tensor.numel() / area()})
      BS_CHECK(extent < (int64_t{1} << 30), "{}: an extent of {} is too large for an epilogue", op_,
               extent);
    e.expression.set_d(element_of(result_.tensor.dtype()));
    e.scalars = scalars_of(op_, e.expression, options_.scalars);
    e.operands.push_back(matrices(result_.tensor));
    for (size_t i = 1; i < e.expression.operands().size(); ++i) e.operands.push_back(operand(e, i));
    for (const Reduction& r : e.expression.reductions()) e.reductions.push_back(reduction(r));
    for (const auto& [name, tensor] : options_.tensors) check_known(e.expression, name);
    return e;
  }

 private:
  /// Elements of one row of the matrices that places are counted in.
  int64_t area() const {
    return std::max<int64_t>(result_.layout ? result_.layout->block() : result_.n(), 1);
  }

  /// What was given as `name`, of the dtype that `element` is stored in.
  const Tensor& given(const std::string& name, Element element) const {
    const auto found = options_.tensors.find(name);
    BS_CHECK(found != options_.tensors.end(), "{}: the epilogue's tensor '{}' is missing", op_,
             name);
    const Tensor& t = found->second;
    BS_CHECK(t.defined() && t.dtype() == storage_dtype(element),
             "{}: '{}' is a tensor of {}; the epilogue says {}", op_, name,
             t.defined() ? to_string(t.dtype()) : "nothing", element);
    check_same_device(op_, t, result_.tensor);
    return t;
  }

  Tensor reduction(const Reduction& r) const {
    const Element sums = result_.tensor.dtype() == f64 ? Element::f64 : Element::f32;
    const Tensor& t = given(r.name, sums);
    const int64_t length = r.over_columns ? result_.m() : result_.n();
    const Shape expected = joined(result_.matrices(), {length});
    BS_CHECK(t.shape() == expected && t.is_contiguous(),
             "{}: '{}' is reduced, and has shape {}, strides {}; expected {}, contiguous", op_,
             r.name, t.shape(), t.strides(), expected);
    return t.view({result_.matrices().product(), length});
  }

  Tensor operand(const BlockSparseEpilogue& e, size_t i) const {
    const Operand& o = e.expression.operands()[i];
    if (options_.tensors.count(o.name) == 0 && o.stored < 0 && !reads(e.expression, i, e.scalars))
      return {};
    const Tensor& t = given(o.name, o.element);
    if (o.stored >= 0) {
      BS_CHECK(t.shape() == result_.tensor.shape() && t.is_contiguous(),
               "{}: '{}' is stored, and has shape {}, strides {}; expected {}, contiguous", op_,
               o.name, t.shape(), t.strides(), result_.tensor.shape());
      return matrices(t);
    }
    if (o.kind == Operand::Kind::tensor) return loaded(o.name, t);
    const bool row = o.kind == Operand::Kind::row;
    check(o.name, t, result_.matrices(), {row ? result_.n() : result_.m()});
    const Tensor vectors = batched(t, result_.matrices(), 1);
    return vectors.unsqueeze(row ? 1 : 2).expand({vectors.size(0), result_.m(), result_.n()});
  }

  Tensor loaded(const std::string& name, const Tensor& t) const {
    const Shape& shape = result_.tensor.shape();
    check(name, t, result_.lead(), shape.slice(shape.rank() - result_.inner(), shape.rank()));
    const bool whole = !result_.layout || t.strides()[-3] == t.size(-2) * t.strides()[-2];
    return matrices(whole ? t : contiguous(t));
  }

  /// [batch, rows, columns]; blocks stand one below the other.
  Tensor matrices(const Tensor& t) const {
    Tensor x = batched(t, result_.lead(), result_.inner());
    if (!result_.layout) return x;
    return x.as_strided({x.size(0), x.size(1) * x.size(2), x.size(3)},
                        {x.strides()[0], x.strides()[2], x.strides()[3]});
  }

  void check(const std::string& name, const Tensor& t, const Shape& lead, const Shape& own) const {
    const int front = t.rank() - own.rank();
    bool fits = front >= 0 && front <= lead.rank() && t.shape().slice(front, t.rank()) == own;
    for (int i = 1; fits && i <= front; ++i) {
      const int64_t extent = t.shape()[front - i];
      fits = extent == 1 || extent == lead[-i];
    }
    BS_CHECK(fits, "{}: '{}' has shape {}; expected {}, or what broadcasts to it", op_, name,
             t.shape(), joined(lead, own));
  }

  void check_known(const GemmEpilogue& e, const std::string& name) const {
    const auto named = [&](const auto& x) { return x.name == name; };
    const auto& all = e.operands();
    const auto& reduced = e.reductions();
    BS_CHECK(std::any_of(all.begin() + 1, all.end(), named) ||
                 std::any_of(reduced.begin(), reduced.end(), named),
             "{}: the epilogue has no tensor '{}'; it is\n{}", op_, name, bs::to_string(e));
  }

  const char* op_;
  const ProductOptions& options_;
  Result result_;
};

std::optional<BlockSparseEpilogue> resolve(const char* op, const ProductOptions& options,
                                           const Result& result) {
  if (options.epilogue) return Resolver(op, options, result).resolve();
  BS_CHECK(options.tensors.empty() && options.scalars.empty(),
           "{}: tensors or scalars, but no epilogue that names them", op);
  return std::nullopt;
}

}  // namespace

std::optional<BlockSparseEpilogue> resolve_epilogue(const char* op, const ProductOptions& options,
                                                    const Tensor& c) {
  return resolve(op, options, {c});
}

std::optional<BlockSparseEpilogue> resolve_epilogue(const char* op, const ProductOptions& options,
                                                    const Tensor& values, const Layout& layout) {
  return resolve(op, options, {values, &layout});
}

void reduce_nothing(const BlockSparseEpilogue& e) {
  BS_CHECK(e.reductions.size() == e.expression.reductions().size(),
           "epilogue: {} tensors for its {} reductions", e.reductions.size(),
           e.expression.reductions().size());
  for (size_t i = 0; i < e.reductions.size(); ++i)
    fill(e.reductions[i],
         e.expression.reductions()[i].is_max ? -std::numeric_limits<double>::infinity() : 0.0);
}

}  // namespace bs
