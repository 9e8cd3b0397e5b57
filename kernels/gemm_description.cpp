#include <bs/kernels/gemm_description.h>
#include <bs/lib/integers.h>

#include <algorithm>

namespace bs {

namespace {

/// Within these no size below overflows, and nothing is divided by 0; check() says more.
void check_numbers(const TileDescription& t) {
  const auto within = [](const auto& numbers, int most) {
    return std::all_of(numbers.begin(), numbers.end(), [&](int x) { return x > 0 && x <= most; });
  };
  constexpr int most_rows = 1024, most_warps = 32, most_ctas = 16, most_stages = 64;
  BS_CHECK(within(t.threadblock, most_rows) && within(t.warps, most_warps) &&
               within(t.math.shape, most_rows) && within(t.cluster, most_ctas) &&
               within(std::array{t.cluster_k}, most_ctas) &&
               within(std::array{t.stages}, most_stages),
           "gemm: no kernel has a tile of {}", t);
}

int warpgroups(const TileDescription& t) { return t.warps[0] / 4; }

bool k_contiguous_a(const GemmDescription& d) { return d.a.layout == MatrixLayout::row_major; }
bool k_contiguous_b(const GemmDescription& d) { return d.b.layout == MatrixLayout::column_major; }

/// Whether tensors of `element` feed an instruction that takes `operand`.
bool feeds(Element element, Element operand) {
  const auto plain = [](Element e) { return e == Element::tf32 ? Element::f32 : e; };
  return plain(element) == plain(operand);
}

/// Of a warpgroup's columns, those that one CTA takes to the epilogue: of several along the depth
/// each a part, in steps of 16.
int finished_columns(const TileDescription& t) {
  const int columns = t.math.shape[1];
  return t.cluster_k == 1 ? columns : (columns / t.cluster_k + 15) / 16 * 16;
}

/// The sums as they are kept between instructions and in partial results.
int sum_bytes(const GemmDescription& d) { return d.tile.math.accumulator == Element::f64 ? 8 : 4; }

/// Bytes of one operand's tile in shared memory, padding included: as OperandTile has it.
int operand_bytes(Element element, int side, int depth, bool k_contiguous) {
  const int size = size_of(element);
  const int padding = size >= 4 && !k_contiguous ? 32 / size : 16 / size;
  return (k_contiguous ? side : depth) * ((k_contiguous ? depth : side) + padding) * size;
}

constexpr int most_shared = 227 * 1024;
constexpr int box_bytes = 4096;  // of a warp, for results on their way out

/// Shared memory of a kernel of warpgroups that uses `scratch` bytes a warp for its results.
int warpgroup_bytes(const GemmDescription& d, int scratch) {
  const TileDescription& t = d.tile;
  const auto [m, n, k] = t.threadblock;
  const int stage = (m + n) * 128 * (splits_operands(d) ? 2 : 1);
  const int received = (t.cluster_k - 1) * (m * n / t.math.shape[1]) * finished_columns(t) * 4;
  // Barriers and places of tiles; and room to align.
  return t.stages * (stage + 32) + received + t.warps[0] * t.warps[1] * scratch + 16 + 1024;
}

void check_alignment(const char* name, const TensorDescription& t) {
  BS_CHECK(t.alignment > 0 && (t.alignment & (t.alignment - 1)) == 0 &&
               t.alignment <= 16 / size_of(t.element),
           "gemm: {} is aligned to {} elements of {}; expected 1, 2, 4, ... up to 16 bytes", name,
           t.alignment, t.element);
}

void check_operand(const char* name, const TensorDescription& t, Element operand, int line) {
  BS_CHECK(feeds(t.element, operand), "gemm: {} is {}, but the instruction multiplies {}", name,
           t.element, operand);
  check_alignment(name, t);
  BS_CHECK(line * size_of(t.element) % 16 == 0,
           "gemm: a line of {}'s tile has {} elements of {}; expected a multiple of 16 bytes", name,
           line, t.element);
}

/// What an instruction takes of the depth at a time, as the kernels' Multiply has it.
int step_depth(const MathInstruction& math) { return math.shape[2]; }

void check_portable(const GemmDescription& d) {
  const TileDescription& t = d.tile;
  const auto [m, n, k] = t.threadblock;
  BS_CHECK(t.warps[0] > 0 && t.warps[1] > 0 && t.warps[2] > 0 && t.threads() <= 1024,
           "gemm: {} x {} x {} warps; expected 1 to 32 in all", t.warps[0], t.warps[1], t.warps[2]);
  BS_CHECK(m > 0 && n > 0 && m % (16 * t.warps[0]) == 0 && n % (16 * t.warps[1]) == 0,
           "gemm: a tile of {} x {} does not divide into {} x {} warps of multiples of 16", m, n,
           t.warps[0], t.warps[1]);
  BS_CHECK(k > 0 && k % (t.warps[2] * step_depth(t.math)) == 0,
           "gemm: a depth of {} does not divide into {} warps of multiples of {}", k, t.warps[2],
           step_depth(t.math));
  BS_CHECK(t.cluster_ctas() == 1, "gemm: clusters are for warpgroup instructions");
}

void check_warpgroup(const GemmDescription& d) {
  const TileDescription& t = d.tile;
  const auto [m, n, k] = t.threadblock;
  const int groups = warpgroups(t);
  BS_CHECK(t.warps[0] % 4 == 0 && groups >= 1 && groups <= 3 && t.warps[1] == 1 && t.warps[2] == 1,
           "gemm: {} x {} x {} warps; warpgroups are 4, 8 or 12 x 1 x 1", t.warps[0], t.warps[1],
           t.warps[2]);
  const bool transposed = d.transposed();
  BS_CHECK((transposed ? m : n) == t.math.shape[1] && (transposed ? n : m) % (64 * groups) == 0,
           "gemm: a tile of {} x {} does not divide into {} warpgroups of {} x {}", m, n, groups,
           t.math.shape[0], t.math.shape[1]);
  BS_CHECK(k * size_of(d.a.element) == 128,
           "gemm: a stage {} deep; warpgroups take 128 bytes of {}: {}", k, d.a.element,
           128 / size_of(d.a.element));
  const bool splits = splits_operands(d);
  BS_CHECK(size_of(d.a.element) == 2 || splits || (k_contiguous_a(d) && k_contiguous_b(d)),
           "gemm: warpgroups multiply {} only where the depth lies contiguous in both operands: a "
           "row_major, b column_major; a is {}, b is {}",
           d.a.element, d.a.layout, d.b.layout);
  for (const TensorDescription* x : {&d.a, &d.b})
    BS_CHECK(splits || x->alignment * size_of(x->element) == 16,
             "gemm: warpgroups need operands aligned to 16 bytes, not {} elements of {}",
             x->alignment, x->element);
  const int ctas = t.cluster[0] * t.cluster[1];
  BS_CHECK(ctas == 1 || ctas == 2, "gemm: a cluster of {} x {}; expected 1 x 1, 2 x 1 or 1 x 2",
           t.cluster[0], t.cluster[1]);
  BS_CHECK(
      t.cluster_k >= 1 && t.cluster_k <= 8 && (ctas == 1 || t.cluster_k == 1),
      "gemm: a cluster of {} x {} with {} CTAs along the depth; expected 1 to 8, and more than "
      "one only with 1 x 1",
      t.cluster[0], t.cluster[1], t.cluster_k);
  BS_CHECK(t.cluster_ctas() == 1 || (d.split_k == SplitK::none && d.swizzle != Swizzle::stream_k &&
                                     (d.mode == GemmMode::gemm || d.mode == GemmMode::batched)),
           "gemm: clusters are for gemm and batched with the depth in one piece");
  BS_CHECK(m / t.cluster[1] % 64 == 0 && n / t.cluster[0] % 64 == 0,
           "gemm: {} x {} CTAs that load shares of a tile of {} x {}; expected multiples of 64",
           t.cluster[0], t.cluster[1], m, n);
  if (!splits) return;
  BS_CHECK(
      m * n <= 64 * groups * 192,
      "gemm: fast_f32 keeps two sets of sums: a tile of {} x {} is too large for {} warpgroups", m,
      n, groups);
  BS_CHECK(d.mode == GemmMode::gemm || d.mode == GemmMode::batched,
           "gemm: fast_f32 of warpgroups is for gemm and batched, not {}", d.mode);
}

}  // namespace

int TileDescription::threads() const {
  return 32 * warps[0] * warps[1] * warps[2] + (math.op_class == OpClass::warpgroup ? 128 : 0);
}

void check(const GemmDescription& d) {
  const TileDescription& t = d.tile;
  check_numbers(t);
  check(t.math);
  const auto [m, n, k] = t.threadblock;
  check_operand("a", d.a, t.math.a, k_contiguous_a(d) ? k : m);
  check_operand("b", d.b, t.math.b, k_contiguous_b(d) ? k : n);
  BS_CHECK(d.d.element != Element::tf32, "gemm: d cannot be stored as tf32; use f32");
  check_alignment("d", d.d);
  if (t.math.op_class == OpClass::warpgroup) {
    check_warpgroup(d);
  } else {
    check_portable(d);
  }
  BS_CHECK(t.stages >= 2 && t.stages <= 16, "gemm: {} stages; expected 2 to 16", t.stages);
  BS_CHECK(shared_bytes(d) <= most_shared,
           "gemm: {} stages of a tile of {} x {} x {} take {} bytes of shared memory, more than {}",
           t.stages, m, n, k, shared_bytes(d), most_shared);
  const bool several = d.mode == GemmMode::array || d.mode == GemmMode::grouped;
  const bool stream_k = d.swizzle == Swizzle::stream_k;
  BS_CHECK(!several || (d.split_k == SplitK::none && !stream_k),
           "gemm: {} products are not split along the depth", d.mode);
  BS_CHECK(!stream_k || d.split_k == SplitK::none, "gemm: stream_k divides the depth itself");
  BS_CHECK(d.scheduler == GemmScheduler::device || d.mode == GemmMode::grouped,
           "gemm: a schedule made on the host is for grouped products");
}

int reduction_chunk(const GemmDescription& d) {
  const TileDescription& t = d.tile;
  check_numbers(t);
  const auto [m, n, k] = t.threadblock;
  const int lead = d.transposed() ? m : n;  // the extent along which a warp's rows run
  const int columns = t.math.op_class == OpClass::warpgroup
                          ? finished_columns(t)
                          : lead / t.warps[d.transposed() ? 0 : 1];
  return columns % 32 == 0 ? 32 : columns % 16 == 0 ? 16 : 8;
}

bool splits_operands(const GemmDescription& d) {
  return d.tile.math.op_class == OpClass::warpgroup &&
         d.tile.math.operation == MathOperation::fast_f32;
}

bool stores_boxes(const GemmDescription& d) {
  check_numbers(d.tile);
  int stored = 0;
  for (const epilogue::Operand& o : d.epilogue.operands()) stored += o.stored >= 0;
  const int size = size_of(d.d.element);
  return d.tile.math.op_class == OpClass::warpgroup && stored == 1 &&
         d.epilogue.reductions().empty() && (size == 2 || size == 4) &&
         d.d.alignment == 16 / size && (d.mode == GemmMode::gemm || d.mode == GemmMode::batched) &&
         d.tile.cluster_k == 1 && warpgroup_bytes(d, box_bytes) <= most_shared;
}

int64_t partial_elements(const GemmDescription& d) {
  const auto [m, n, k] = d.tile.threadblock;
  return int64_t{m} * n * d.tile.warps[2];
}

int join_jobs(const GemmDescription& d) {
  check_numbers(d.tile);
  const auto [m, n, k] = d.tile.threadblock;
  return m * n / (16 * reduction_chunk(d));
}

int64_t join_ctas(const GemmDescription& d, int64_t tiles, int slices) {
  BS_CHECK(tiles >= 0 && tiles <= int64_t{1} << 40 && slices >= 0, "gemm: {} tiles in {} slices",
           tiles, slices);
  const int64_t jobs = tiles * join_jobs(d);
  return slices > join_alone ? jobs : ceil_div(jobs * 32, join_threads);
}

int shared_bytes(const GemmDescription& d) {
  const TileDescription& t = d.tile;
  check_numbers(t);
  const auto [m, n, k] = t.threadblock;
  const int slab = 16 * (reduction_chunk(d) + 8) * sum_bytes(d);
  if (t.math.op_class == OpClass::warpgroup)
    return warpgroup_bytes(d, stores_boxes(d) ? box_bytes : slab);
  const int stage = operand_bytes(d.a.element, m, k, k_contiguous_a(d)) +
                    operand_bytes(d.b.element, n, k, k_contiguous_b(d));
  const int joined = (t.warps[2] - 1) * m * n * sum_bytes(d);
  return std::max(t.stages * stage, t.warps[0] * t.warps[1] * slab + joined) +
         t.stages * 16;  // barriers
}

std::string to_string(MatrixLayout layout) {
  return layout == MatrixLayout::row_major ? "row_major" : "column_major";
}
std::string to_string(Swizzle swizzle) {
  constexpr const char* names[] = {"identity1", "identity2", "identity4", "identity8", "stream_k"};
  return names[static_cast<size_t>(swizzle)];
}
std::string to_string(SplitK split) {
  constexpr const char* names[] = {"none", "serial", "parallel"};
  return names[static_cast<size_t>(split)];
}
std::string to_string(GemmMode mode) {
  constexpr const char* names[] = {"gemm", "batched", "array", "grouped"};
  return names[static_cast<size_t>(mode)];
}
std::string to_string(const TileDescription& t) {
  const auto [m, n, k] = t.threadblock;
  const std::string depth = t.cluster_k == 1 ? "" : format("x{}", t.cluster_k);
  return format("{}x{}x{} stages {} warps {}x{}x{} cluster {}x{}{} {}", m, n, k, t.stages,
                t.warps[0], t.warps[1], t.warps[2], t.cluster[0], t.cluster[1], depth, t.math);
}
std::string to_string(const TensorDescription& t) {
  return format("{} {} align {}", t.element, t.layout, t.alignment);
}

}  // namespace bs
