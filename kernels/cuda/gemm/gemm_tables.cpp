#include <bs/kernels/cuda/gemm/gemm_split.h>
#include <bs/kernels/cuda/gemm/gemm_tables.h>
#include <bs/kernels/fill.h>
#include <bs/lib/cuda/runtime.h>
#include <bs/lib/cuda/tensor_map.h>
#include <bs/lib/cuda/upload.h>
#include <bs/lib/integers.h>

#include <algorithm>
#include <bit>

namespace bs::cuda {

using device::GemmMatrix;
using device::GemmOperand;
using device::GemmProblem;
using device::GemmTile;
using device::TensorMapWords;

namespace {

/// Elements from one line to the next. Where there is but one, the least distance that is aligned.
int64_t leading(const Tensor& t, bool rows, Element element) {
  const int64_t lines = t.size(rows ? 1 : 2), length = t.size(rows ? 2 : 1);
  const int64_t chunk = 16 / size_of(element);
  return lines == 1 ? round_up(length, chunk) : t.strides()[rows ? 1 : 2];
}

GemmMatrix matrix(const Tensor& t, bool rows, Element element) {
  return {t.data(), leading(t, rows, element), t.strides()[0]};
}

GemmProblem problem(const SeenGemm& s) {
  return {static_cast<int>(s.p.m), static_cast<int>(s.p.n), static_cast<int>(s.p.k),
          matrix(s.p.a, s.a_rows, s.a.element), matrix(s.p.b, s.b_rows, s.b.element)};
}

TensorMapElement map_element(Element e) {
  switch (e) {
    case Element::f16:
      return TensorMapElement::f16;
    case Element::bf16:
      return TensorMapElement::bf16;
    case Element::f32:
    case Element::tf32:
      return TensorMapElement::tf32;
    default:
      return TensorMapElement::u8;
  }
}

/// Boxes of `side` of one operand by 128 bytes of depth. Where sides are neighbours, boxes are of
/// 128 bytes of sides by as many of the depth.
TensorMapWords map(const Tensor& t, bool rows, bool depth_last, Element element, int side,
                   TensorMapElement type) {
  const int line = 128 / size_of(element);
  const bool along_k = rows == depth_last;
  TiledTensor tiled{
      .element = type, .address = t.data(), .rank = 3, .swizzle = TensorMapSwizzle::bytes_128};
  tiled.dims = {t.size(rows ? 2 : 1), t.size(rows ? 1 : 2), t.size(0), 1, 1};
  const int64_t ld = leading(t, rows, element) * size_of(element);
  const bool repeated = t.size(0) == 1 || t.strides()[0] == 0;
  if (repeated) tiled.dims[2] = 1;
  tiled.strides = {0, ld, repeated ? tiled.dims[1] * ld : t.strides()[0] * size_of(element), 0, 0};
  tiled.box = {line, along_k ? side : line, 1, 1, 1};
  return std::bit_cast<TensorMapWords>(encode_tiled("gemm", tiled));
}
TensorMapWords map(const Tensor& t, bool rows, bool depth_last, Element element, int side) {
  return map(t, rows, depth_last, element, side, map_element(element));
}
/// Of a result, in boxes of 16 rows by 128 bytes, as its bits are.
TensorMapWords map_result(const Tensor& t, Element element) {
  return map(t, true, true, element, 16,
             size_of(element) == 4 ? TensorMapElement::u32 : TensorMapElement::u16);
}

/// x without the repetition of what serves a whole batch.
Tensor once(const Tensor& x) { return x.strides()[0] == 0 ? x.slice(0, 0, 1) : x; }

/// Numbers from one line of an operand's parts to the next.
int64_t parts_ld(int64_t depth) { return round_up(depth, 4); }

}  // namespace

GemmOperand gemm_operand(const Tensor& t, Element element, int vector) {
  const int64_t bytes = std::min(16, vector * size_of(element));
  // Whether lines of neighbours begin at multiples of what one access takes.
  const auto aligned = [&](int64_t elements) { return elements * size_of(element) % bytes == 0; };
  const bool wide = t.strides()[2] == 1 && (t.size(1) == 1 || aligned(t.strides()[1])) &&
                    (t.size(0) == 1 || aligned(t.strides()[0])) &&
                    reinterpret_cast<uintptr_t>(t.data()) % static_cast<uintptr_t>(bytes) == 0;
  return {t.data(), t.strides()[1], t.strides()[2], t.strides()[0], wide ? 1 : 0};
}

SeenGemm::SeenGemm(const GemmDescription& d, const GemmTensors& product)
    : p(product),
      a(d.a),
      b(d.b),
      a_rows(d.a.layout == MatrixLayout::row_major),
      b_rows(d.b.layout == MatrixLayout::row_major),
      rows(d.tile.threadblock[0]),
      columns(d.tile.threadblock[1]) {
  if (p.k == 0) no_depth();
  if (!d.transposed()) return;
  const Tensor left = p.b.transpose(1, 2), right = p.a.transpose(1, 2);
  p.a = left;
  p.b = right;
  std::swap(a, b);
  std::swap(a_rows, b_rows);
  a_rows = !a_rows;
  b_rows = !b_rows;
  std::swap(p.m, p.n);
  std::swap(rows, columns);
  for (Tensor& t : p.operands)
    if (t.defined()) t = t.transpose(1, 2);
}

void SeenGemm::no_depth() {  // a sum over nothing is one over zeros
  constexpr int64_t depth = 16;
  const auto nothing = [&](const Tensor& like, bool by_rows, int64_t height, int64_t width) {
    const int64_t ld = round_up(by_rows ? width : height, 16);
    const Tensor all = zeros({(by_rows ? height : width) * ld}, like.dtype(), like.device());
    return all.as_strided({p.batch, height, width}, {0, by_rows ? ld : 1, by_rows ? 1 : ld});
  };
  p.a = nothing(p.a, a_rows, p.m, depth);
  p.b = nothing(p.b, b_rows, depth, p.n);
  p.k = depth;
}

int64_t SeenGemm::tiles(const GemmDescription& d) const {
  const int down = d.tile.cluster[d.transposed() ? 1 : 0],
            across = d.tile.cluster[d.transposed() ? 0 : 1];
  const int64_t high = ceil_div(p.m, rows), wide = ceil_div(p.n, columns);
  // Of an odd number of rows (columns) of tiles, the last one's are paired along it.
  const int64_t odd = down == 2     ? high % 2 * ceil_div(wide, 2)
                      : across == 2 ? wide % 2 * ceil_div(high, 2)
                                    : 0;
  return p.batch * (high / down * (wide / across) + odd);
}

int64_t SeenGemm::steps(const GemmDescription& d) const {
  return ceil_div(p.k, d.tile.threadblock[2]);
}

GemmMemory::GemmMemory(const GemmDescription& d, const std::vector<SeenGemm>& products,
                       int64_t tiles, int slices, int ctas, bool several)
    : d_(d),
      products_(products),
      several_(several),
      on_host_(several && d.scheduler == GemmScheduler::host),
      tiles_(tiles) {
  const bool stream_k = d.swizzle == Swizzle::stream_k;
  const int64_t sums = stream_k                      ? 2 * ctas
                       : slices == 1                 ? 0
                       : d.split_k == SplitK::serial ? tiles
                                                     : tiles * slices;
  const int64_t size = d.tile.math.accumulator == Element::f64 ? 8 : 4;
  const bool counts = sums > 0 && d.split_k != SplitK::parallel;
  counter_bytes_ = counts ? static_cast<size_t>(tiles) * sizeof(int) : 0;
  counters_ = add(counter_bytes_);
  partials_ = add(static_cast<size_t>(sums * partial_elements(d) * size));
  const int chunk = reduction_chunk(d);
  for (const SeenGemm& s : products) {
    std::vector<Reduced> reduced;
    for (const epilogue::Reduction& r : d.epilogue.reductions()) {
      const bool over_columns = r.over_columns != d.transposed();
      const Shape shape = over_columns ? Shape{s.p.batch, ceil_div(s.p.n, chunk), s.p.m}
                                       : Shape{s.p.batch, ceil_div(s.p.m, 16), s.p.n};
      reduced.push_back({add(static_cast<size_t>(shape.product() * size)), shape});
    }
    reductions_.push_back(std::move(reduced));
  }
  if (splits_operands(d)) {
    const GemmTensors& p = products.front().p;
    const auto bytes = [&](const Tensor& x, int64_t side) {
      return static_cast<size_t>(2 * once(x).size(0) * side * parts_ld(p.k)) * sizeof(float);
    };
    parts_a_ = add(bytes(p.a, p.m));
    parts_b_ = add(bytes(p.b, p.n));
  }
  if (!several) return;
  const size_t width = d.epilogue.operands().size() + d.epilogue.reductions().size();
  problems_ = add(products.size() * sizeof(GemmProblem));
  operand_table_ = add(products.size() * width * sizeof(GemmOperand));
  maps_ = add(products.size() * 2 * sizeof(TensorMapWords));
  if (on_host_) schedule_ = add(static_cast<size_t>(tiles) * sizeof(GemmTile));
}

size_t GemmMemory::add(size_t bytes) {
  const size_t here = bytes_;
  bytes_ += (bytes + 255) / 256 * 256;
  return here;
}

void GemmMemory::allocate(Stream stream) {
  stream_ = stream;
  if (bytes_ == 0) return;
  memory_ = Tensor::empty({static_cast<int64_t>(bytes_)}, u8, stream.device());
  if (counter_bytes_ > 0) fill_zero(at<void>(counters_), counter_bytes_, stream);
}

Tensor GemmMemory::parts(const Tensor& x, size_t offset) const {
  const int64_t batch = 2 * once(x).size(0), ld = parts_ld(x.size(2));
  return Tensor::from_blob(at<float>(offset), {batch, x.size(1), ld}, f32, stream_.device())
      .slice(2, 0, x.size(2));
}

void GemmMemory::split(Stream stream) const {
  if (!splits_operands(d_)) return;
  const GemmTensors& p = products_.front().p;
  gemm_split({once(p.a), at<float>(parts_a_), parts_ld(p.k)},
             {once(p.b).transpose(1, 2), at<float>(parts_b_), parts_ld(p.k)}, stream);
}

Tensor GemmMemory::partial(size_t product, size_t r) const {
  const Reduced& reduced = reductions_[product][r];
  const DType dtype = d_.tile.math.accumulator == Element::f64 ? f64 : f32;
  return Tensor::from_blob(at<void>(reduced.at), reduced.shape, dtype, stream_.device());
}

template <class T>
T* GemmMemory::upload(size_t offset, const std::vector<T>& table) const {
  copy_to_device(at<T>(offset), table.data(), table.size() * sizeof(T), stream_);
  return at<T>(offset);
}

std::vector<GemmOperand> GemmMemory::operands(size_t product) const {
  const SeenGemm& s = products_[product];
  const int vector = std::min(16 / size_of(d_.d.element), 8);
  std::vector<GemmOperand> out;
  for (size_t i = 0; i < s.p.operands.size(); ++i) {
    const Tensor& t = s.p.operands[i];
    out.push_back(t.defined() ? gemm_operand(t, d_.epilogue.operands()[i].element, vector)
                              : GemmOperand{});
  }
  for (size_t r = 0; r < reductions_[product].size(); ++r) {
    const bool over_columns = d_.epilogue.reductions()[r].over_columns != d_.transposed();
    const Shape& shape = reductions_[product][r].shape;
    out.push_back({at<void>(reductions_[product][r].at), over_columns ? 1 : shape[2],
                   over_columns ? shape[2] : 1, shape[1] * shape[2], 0});
  }
  return out;
}

std::vector<GemmTile> GemmMemory::schedule() const {
  std::vector<GemmTile> out;
  out.reserve(static_cast<size_t>(tiles_));
  for (size_t i = 0; i < products_.size(); ++i)
    for (int64_t tile = 0; tile < products_[i].tiles(d_); ++tile)
      out.push_back({static_cast<int>(i), static_cast<int>(tile)});
  return out;
}

void GemmMemory::describe(device::WarpgroupGemmParams& params, bool maps) const {
  device::GemmParams& gemm = params.gemm;
  if (memory_.defined()) {
    gemm.counters = at<int>(counters_);
    gemm.partials = at<void>(partials_);
  }
  const bool splits = splits_operands(d_);
  const auto map_a = [&](const SeenGemm& s) {
    const int side = s.rows / d_.tile.cluster[d_.transposed() ? 0 : 1];
    if (splits) return map(parts(s.p.a, parts_a_), true, true, s.a.element, side);
    return map(s.p.a, s.a_rows, true, s.a.element, side);
  };
  const auto map_b = [&](const SeenGemm& s) {
    const int side = s.columns / d_.tile.cluster[d_.transposed() ? 1 : 0];
    if (splits) return map(parts(s.p.b.transpose(1, 2), parts_b_), true, true, s.b.element, side);
    return map(s.p.b, s.b_rows, false, s.b.element, side);
  };
  if (!several_) {
    gemm.problem = problem(products_.front());
    const std::vector<GemmOperand> list = operands(0);
    std::copy(list.begin(), list.end(), gemm.operands);
    if (!maps) return;
    params.a = map_a(products_.front());
    params.b = map_b(products_.front());
    const Tensor& out = products_.front().p.operands.front();
    if (stores_boxes(d_) && out.defined()) params.d = map_result(out, d_.d.element);
    return;
  }
  std::vector<GemmProblem> problems;
  std::vector<GemmOperand> table;
  std::vector<TensorMapWords> encoded;
  for (size_t i = 0; i < products_.size(); ++i) {
    problems.push_back(problem(products_[i]));
    const std::vector<GemmOperand> list = operands(i);
    table.insert(table.end(), list.begin(), list.end());
    gemm.table_width = static_cast<int>(list.size());
    if (!maps) continue;
    encoded.push_back(map_a(products_[i]));
    encoded.push_back(map_b(products_[i]));
  }
  gemm.problems = upload(problems_, problems);
  gemm.operand_table = upload(operand_table_, table);
  if (maps) params.maps = upload(maps_, encoded);
  if (on_host_) gemm.schedule = upload(schedule_, schedule());
}

}  // namespace bs::cuda
