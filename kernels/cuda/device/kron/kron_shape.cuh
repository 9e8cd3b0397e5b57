#pragma once
// The extents of a pass of kron_matmul and what follows from them, known when a kernel is compiled.
// Host code includes this header as it is.

namespace bs::cuda::device {

constexpr int kron_up(int x, int unit) { return (x + unit - 1) / unit * unit; }

/// Bytes of a tile in shared memory, whose chunks are exchanged within lines of 128 bytes.
constexpr int kron_tile_bytes(int elements, int size) { return kron_up(elements * size, 128); }

/// How a step multiplies.
enum class KronStepKind {
  along_inner,  ///< a thread has some neighbours of the inner extent
  along_rows,   ///< inner extent 1: a thread has some rows
  mma_inner,    ///< tensor cores, the factor from the left
  mma_rows,     ///< inner extent 1: tensor cores, the factor from the right
  mma_columns   ///< tensor cores for f32 and f64, the factor from the left of any columns
};

/// [outer, p, inner] to [outer, q, inner].
struct KronStep {
  int size, products, outer, p, q, inner, threads;

  constexpr bool tensor() const {
    // Rounding operands, or splitting them, costs what tensor cores save unless they are used
    // often.
    const int least = size != 4 ? 16 : products == 1 ? 32 : 96;
    return (size != 4 || products > 0) && p % 16 == 0 && q % 16 == 0 && p >= least && q >= least &&
           q <= 128;
  }
  /// Elements moved at once; for 16 bits so many that the sums stay in registers.
  constexpr int vector() const { return size == 2 && q > 8 ? 4 : 16 / size; }
  constexpr KronStepKind kind() const {
    if (size == 2 && tensor() && inner % 8 == 0) return KronStepKind::mma_inner;
    if (size == 2 && tensor() && inner == 1 && outer % 16 == 0) return KronStepKind::mma_rows;
    if (size > 2 && tensor() && outer * inner % 16 == 0) return KronStepKind::mma_columns;
    if (inner == 1 && p % vector() == 0) return KronStepKind::along_rows;
    return KronStepKind::along_inner;
  }
  constexpr bool on_tensor_cores() const {
    return kind() == KronStepKind::mma_inner || kind() == KronStepKind::mma_rows ||
           kind() == KronStepKind::mma_columns;
  }
  /// Elements from a row of the factor in shared memory to the next; those of wider types are read
  /// one by one, four rows at a time, and the padding spreads these over the banks.
  constexpr int line() const {
    if (kind() == KronStepKind::mma_columns) return q + (size == 8 ? 4 : 8);
    return on_tensor_cores() ? q : padded();
  }
  // Threads: `results` of a thread along q, times `lanes` of the inner extent or of the rows.
  constexpr int results() const { return q <= 16 ? kron_up(q, 4) : 8; }
  constexpr int padded() const { return kron_up(q, results()); }
  constexpr int lanes() const {
    if (kind() == KronStepKind::along_rows) return size == 8 ? 2 : 4;
    return inner % vector() == 0 ? vector() : 1;
  }
  constexpr int columns() const {  ///< items that have the same part of q
    return kind() == KronStepKind::along_rows ? (outer + lanes() - 1) / lanes()
                                              : outer * inner / lanes();
  }
  constexpr int items() const { return columns() * (padded() / results()); }
  constexpr bool exclusive() const { return results() >= q; }
  constexpr bool held() const { return items() <= threads; }
  /// On tensor cores, the results along q that a warp has at a time: of f64 not more than registers
  /// hold.
  constexpr int parts() const {
    int n = 1;
    if (size == 8 && kind() == KronStepKind::mma_columns)
      while (q > 64 && (q / n > 32 || q % (16 * n) != 0)) ++n;
    return n;
  }
  constexpr int part() const { return q / parts(); }
  constexpr bool in_place() const {
    return p == q && (on_tensor_cores() ? parts() == 1 : exclusive() || held());
  }
  /// Registers of a thread's sums.
  constexpr int registers() const {
    if (kind() == KronStepKind::mma_inner) return q / (inner % 16 == 0 ? 2 : 4);
    if (kind() == KronStepKind::mma_rows) return q / 2;
    // As many again as the sums: ptxas keeps operands of several tiles at a time.
    if (kind() == KronStepKind::mma_columns) return part() * (size == 8 ? 2 : 1);
    return lanes() * results() * (size == 8 ? 2 : 1);
  }
  constexpr int factor_bytes() const {
    return kron_tile_bytes(p * line(), on_tensor_cores() ? size : size == 8 ? 8 : 4);
  }
};

/// The sum over outer and inner of h [outer, p, inner] g [outer, q, inner]: [p, q].
struct KronContract {
  int size, products, outer, p, q, inner, threads;

  constexpr bool tensor() const {
    if (p % 16 != 0 || q % 16 != 0) return false;
    if (size == 2) return inner % 16 == 0 || (inner == 1 && outer % 16 == 0);
    // Three products of operands that are both split would be no faster than plain arithmetic; more
    // sums of f64 than four tiles a warp leave too few registers.
    const bool few = p * q <= 4 * 16 * 16 * (threads / 32);
    return (size == 8 ? few : products == 1) && outer * inner % 16 == 0;
  }
  constexpr int vector() const { return 16 / size; }
  constexpr int tile() const { return tensor() ? 16 : 4; }  ///< results of a worker, each way
  constexpr int workers() const { return tensor() ? threads / 32 : threads; }
  constexpr int tiles_across() const { return (q + tile() - 1) / tile(); }
  constexpr int tiles() const { return (p + tile() - 1) / tile() * tiles_across(); }
  constexpr int own_tiles() const { return (tiles() + workers() - 1) / workers(); }
  constexpr int slices() const { return tiles() > workers() ? 1 : workers() / tiles(); }
  constexpr int sums() const { return own_tiles() * (tensor() ? 8 : 16); }  ///< of a thread
  constexpr int scratch_bytes() const {
    return slices() == 1 ? 0 : slices() * p * q * (size == 8 ? 8 : 4);
  }
};

struct KronShape {
  static constexpr int most = 8;
  int size;
  int products;  ///< of TF32 that make one of f32: 1, or 3, which are as exact; 0: plain arithmetic
  int rows, chunk, threads, count;
  int p[most], q[most];  ///< slowest first

  constexpr int outer(int i) const {
    int n = rows;
    for (int k = 0; k < i; ++k) n *= p[k];
    return n;
  }
  constexpr int inner(int i) const {
    int n = chunk;
    for (int k = i + 1; k < count; ++k) n *= q[k];
    return n;
  }
  constexpr int before(int i) const { return outer(i) * p[i] * inner(i); }
  constexpr int after(int i) const { return outer(i) * q[i] * inner(i); }
  constexpr int in() const { return before(count - 1); }
  constexpr int out() const { return after(0); }
  constexpr int widest() const {
    int n = in();
    for (int i = 0; i < count; ++i) n = after(i) > n ? after(i) : n;
    return n;
  }
  constexpr int weights(int i) const {  ///< of the factors before this one
    int n = 0;
    for (int k = 0; k < i; ++k) n += p[k] * q[k];
    return n;
  }

  constexpr KronStep step(int i) const {
    return {size, products, outer(i), p[i], q[i], inner(i), threads};
  }
  constexpr KronStep step_back(int i) const {
    return {size, products, outer(i), q[i], p[i], inner(i), threads};
  }
  constexpr KronContract contract(int i) const {
    return {size, products, outer(i), p[i], q[i], inner(i), threads};
  }

  /// CTAs that an SM should hold: bounds the registers.
  constexpr int ctas() const {
    bool few = threads == 256 && size < 8;
    for (int i = 0; i < count; ++i) few = few && step(i).registers() <= 32;
    return few ? 2 : 1;
  }
  constexpr bool two_tiles() const {
    bool two = false;
    for (int i = 0; i < count; ++i) two = two || !step(i).in_place();
    return two;
  }
  constexpr int tile_bytes() const { return kron_tile_bytes(widest(), size); }
  constexpr int factor_at(int i) const {  ///< bytes before it
    int n = 0;
    for (int k = 0; k < i; ++k) n += step(k).factor_bytes();
    return n;
  }
  constexpr int forward_bytes() const {
    return tile_bytes() * (two_tiles() ? 2 : 1) + factor_at(count);
  }

  // Backward keeps the tile before each factor, and one or two of gradients.
  constexpr bool two_gradients() const {
    bool two = false;
    for (int i = 0; i < count; ++i) two = two || !step_back(i).in_place();
    return two;
  }
  constexpr int before_at(int i) const {  ///< bytes of the tiles before the factors ahead of it
    int n = 0;
    for (int k = 0; k < i; ++k) n += kron_tile_bytes(before(k), size);
    return n;
  }
  constexpr int factor_back_at(int i) const {
    int n = 0;
    for (int k = 0; k < i; ++k) n += step_back(k).factor_bytes();
    return n;
  }
  constexpr int backward_tiles() const {
    return before_at(count) + tile_bytes() * (two_gradients() ? 2 : 1);
  }
  /// The slowest axis, the last step, is not computed again.
  constexpr int again_bytes() const { return factor_at(count) - factor_at(1); }
  constexpr int backward_bytes() const {
    int bytes = backward_tiles() + again_bytes() + factor_back_at(count);
    for (int i = 0; i < count; ++i)  // the tiles are over when slices are summed
      bytes = contract(i).scratch_bytes() > bytes ? contract(i).scratch_bytes() : bytes;
    return bytes;
  }
  constexpr int sums() const {
    int n = 0;
    for (int i = 0; i < count; ++i) n += contract(i).sums();
    return n;
  }
};

/// A factor as it lies in global memory, in elements.
struct KronFactor {
  const void* data;
  long long group, row, col;
};

struct KronForwardArguments {
  const void *x, *bias;
  void *before, *y;
  long long outer, inner;  ///< of the pass
  unsigned tiles, chunks;  ///< of a group; of a row
  int activation;
  KronFactor factors[KronShape::most];
};

struct KronBackwardArguments {
  const void *x, *dy;
  void *dx, *partials;  ///< partials [groups, CTAs, all factors]
  long long outer, inner;
  unsigned tiles, chunks;
  KronFactor factors[KronShape::most];
};

struct KronSumArguments {
  const void* partials;
  void* results[KronShape::most];  ///< null where not wanted
  int ends[KronShape::most];       ///< of the factors, in elements
  int count, ctas, elements;
};

}  // namespace bs::cuda::device
