// Tensor cores: matrices between shared memory and the registers of a warp, and their products.
#include <bs/tests/emulator/numbers.h>
#include <bs/tests/emulator/operands.h>
#include <bs/tests/emulator/operations.h>
#include <bs/tests/emulator/tensor_map.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace bs::emulator {

namespace {

Thread& lane_of(const Warp& warp, int lane) { return *warp[static_cast<size_t>(lane)]; }
int register_of(const Instruction& i, int number) { return i.list[static_cast<size_t>(number)]; }

/// Element e of the four bytes in a register.
template <class T>
double element(const Thread& t, int number, int e) {
  if constexpr (std::is_same_v<T, double>) {
    return t.read<double>(number);
  } else {
    T value;
    std::memcpy(&value,
                reinterpret_cast<const std::byte*>(t.registers + number) +
                    static_cast<size_t>(e) * sizeof value,
                sizeof value);
    return static_cast<double>(static_cast<float>(value));
  }
}

/// A sum as it is stored: whole numbers of 32 bits wrap around, or stop at the ends.
template <class Sum, bool stops = false>
Sum stored(double sum) {
  if constexpr (std::is_same_v<Sum, int32_t>) {
    constexpr double least = std::numeric_limits<int32_t>::min(),
                     most = std::numeric_limits<int32_t>::max();
    if (stops) return static_cast<int32_t>(std::clamp(sum, least, most));
    return static_cast<int32_t>(static_cast<uint32_t>(static_cast<int64_t>(sum)));
  } else {
    return static_cast<Sum>(sum);
  }
}

/// The row of 16 bytes that lane 8 m + row of a warp tells, of matrix m.
std::byte* row_of(const Warp& warp, const Instruction& i, int m, int row) {
  const Thread& t = lane_of(warp, 8 * m + row);
  return t.cta->shared_at(t.read<uint32_t>(i.a) + static_cast<uint64_t>(i.immediate), 16);
}

/// Where lane and element of a matrix of 8 x 8 lie in its rows.
template <bool transposed>
std::byte* place_of(const Warp& warp, const Instruction& i, int m, int lane, int e) {
  const int group = lane / 4, pair = 2 * (lane % 4) + e;
  return row_of(warp, i, m, transposed ? pair : group) + 2 * (transposed ? group : pair);
}

template <bool transposed>
void load_matrices(const Warp& warp, uint32_t, const Instruction& i) {
  std::array<std::array<uint32_t, 4>, warp_size> loaded;
  for (int m = 0; m < i.elements(); ++m)
    for (int lane = 0; lane < warp_size; ++lane) {
      std::array<uint16_t, 2> pair;
      for (int e = 0; e < 2; ++e)
        std::memcpy(&pair[static_cast<size_t>(e)], place_of<transposed>(warp, i, m, lane, e), 2);
      loaded[static_cast<size_t>(lane)][static_cast<size_t>(m)] = pair[0] | uint32_t{pair[1]} << 16;
    }
  for (int lane = 0; lane < warp_size; ++lane)
    for (int m = 0; m < i.elements(); ++m)
      lane_of(warp, lane)
          .write(register_of(i, m), loaded[static_cast<size_t>(lane)][static_cast<size_t>(m)]);
}

template <bool transposed>
void store_matrices(const Warp& warp, uint32_t, const Instruction& i) {
  for (int m = 0; m < i.elements(); ++m)
    for (int lane = 0; lane < warp_size; ++lane) {
      const auto pair = lane_of(warp, lane).read<uint32_t>(register_of(i, m));
      for (int e = 0; e < 2; ++e) {
        const auto value = static_cast<uint16_t>(pair >> (16 * e));
        std::memcpy(place_of<transposed>(warp, i, m, lane, e), &value, sizeof value);
      }
    }
}

/// f(Type<A>, Type<B>) for elements of eight bits, whose types an opcode names side by side.
template <class F>
ExecuteWarp of_f8(const Opcode& o, F&& f) {
  const auto is_type = [](std::string_view word) { return word == "e4m3" || word == "e5m2"; };
  const auto a = std::find_if(o.words.begin(), o.words.end(), is_type);
  if (a == o.words.end() || a + 1 == o.words.end() || !is_type(a[1])) return nullptr;
  if (a[0] == "e4m3")
    return a[1] == "e4m3" ? f(Type<E4m3>(), Type<E4m3>()) : f(Type<E4m3>(), Type<E5m2>());
  return a[1] == "e4m3" ? f(Type<E5m2>(), Type<E4m3>()) : f(Type<E5m2>(), Type<E5m2>());
}

/// d = a b + c of m x k, k x 8 and m x 8, whose elements lie in registers as the PTX ISA draws
/// them.
template <class T, class Sum, int rows, int depth, bool stops = false, class B = T>
void multiply(const Warp& warp, uint32_t, const Instruction& i) {
  constexpr int together = std::is_same_v<T, double> ? 1 : 4 / static_cast<int>(sizeof(T));
  constexpr int of_d = rows * 8 / warp_size, of_a = rows * depth / warp_size / together,
                of_b = depth * 8 / warp_size / together, groups = rows / 8;
  double a[rows][depth], b[depth][8], sums[rows][8];
  for (int lane = 0; lane < warp_size; ++lane) {
    const Thread& t = lane_of(warp, lane);
    const int group = lane / 4, quad = lane % 4;
    for (int e = 0; e < together; ++e) {
      for (int r = 0; r < of_a; ++r)
        a[group + r % groups * 8][quad * together + e + r / groups * 4 * together] =
            element<T>(t, register_of(i, of_d + r), e);
      for (int r = 0; r < of_b; ++r)
        b[quad * together + e + r * 4 * together][group] =
            element<B>(t, register_of(i, of_d + of_a + r), e);
    }
    for (int r = 0; r < of_d; ++r)
      sums[group + r / 2 * 8][2 * quad + r % 2] =
          static_cast<double>(t.read<Sum>(register_of(i, of_d + of_a + of_b + r)));
  }
  for (int row = 0; row < rows; ++row)
    for (int column = 0; column < 8; ++column)
      for (int k = 0; k < depth; ++k)
        sums[row][column] = std::fma(a[row][k], b[k][column], sums[row][column]);
  for (int lane = 0; lane < warp_size; ++lane)
    for (int r = 0; r < of_d; ++r)
      lane_of(warp, lane)
          .write(register_of(i, r),
                 stored<Sum, stops>(sums[lane / 4 + r / 2 * 8][lane % 4 * 2 + r % 2]));
}

ExecuteWarp find_product(const Opcode& o) {
  if (o.type() == "f64") {
    if (o.has("m8n8k4")) return multiply<double, double, 8, 4>;
    if (o.has("m16n8k8")) return multiply<double, double, 16, 8>;
    return o.has("m16n8k16") ? multiply<double, double, 16, 16> : nullptr;
  }
  if (o.type() == "s32" && o.has("m16n8k32") && o.has("s8"))
    return o.has("satfinite") ? multiply<int8_t, int32_t, 16, 32, true>
                              : multiply<int8_t, int32_t, 16, 32>;
  if (o.type() != "f32") return nullptr;
  if (o.has("m16n8k16") && o.has("bf16")) return multiply<Brain, float, 16, 16>;
  if (o.has("m16n8k16") && o.has("f16")) return multiply<Half, float, 16, 16>;
  if (o.has("m16n8k8") && o.has("bf16")) return multiply<Brain, float, 16, 8>;
  if (o.has("m16n8k8") && o.has("f16")) return multiply<Half, float, 16, 8>;
  if (o.has("m16n8k8") && o.has("tf32")) return multiply<Tensor32, float, 16, 8>;
  if (o.has("m16n8k4") && o.has("tf32")) return multiply<Tensor32, float, 16, 4>;
  if (!o.has("m16n8k32")) return nullptr;
  return of_f8(o, []<class A, class B>(Type<A>, Type<B>) -> ExecuteWarp {
    return multiply<A, float, 16, 32, false, B>;
  });
}

/// What the 64 bits that describe a matrix in shared memory to wgmma say.
struct Descriptor {
  uint64_t begin, leading, stride;  ///< bytes
  int swizzle;                      ///< as TensorMap's

  explicit Descriptor(uint64_t bits)
      : begin((bits & 0x3fff) << 4),
        leading((bits >> 16 & 0x3fff) << 4),
        stride((bits >> 32 & 0x3fff) << 4),
        swizzle(static_cast<int>((4 - (bits >> 62)) & 3)) {}

  /// Where element (x, k) lies: rows of k, or rows of x where that is `turned`. Lines of 16 bytes
  /// stand beside each other up to the swizzle's width, and eight rows below each other.
  uint64_t place(bool turned, uint64_t x, uint64_t k, uint64_t bytes) const {
    const uint64_t line = 16 << swizzle, pack = 16 / bytes;
    uint64_t at = begin;
    if (!turned) {
      at += x / 8 * stride + x % 8 * line;
      at += swizzle == 0 ? k / pack * leading + k % pack * bytes : k * bytes;
    } else if (swizzle == 0) {
      at += x / pack * stride + x % pack * bytes + k / 8 * leading + k % 8 * 16;
    } else {
      const uint64_t wide = line / bytes;
      at += x / wide * leading + x % wide * bytes + k / 8 * stride + k % 8 * line;
    }
    return swizzled(at, swizzle);
  }
};

/// Flags of an instruction, in its immediate.
enum WarpgroupFlags : int64_t {
  a_in_registers = 1,
  a_turned = 2,
  b_turned = 4,
  a_negative = 8,
  b_negative = 16
};

/// The rows of a warp of its warpgroup's: d (+)= a b, of 16 x `depth` and depth x n.
template <class T, int depth, class Sum = float, bool stops = false, class B = T>
void multiply_warpgroup(const Warp& warp, uint32_t, const Instruction& i) {
  constexpr int together = 4 / static_cast<int>(sizeof(T)), most = 256;
  const Thread& first = lane_of(warp, 0);
  const int of_d = static_cast<int>(i.b_immediate) / 2, columns = 2 * of_d;
  const bool in_registers = (i.immediate & a_in_registers) != 0;
  const int of_a = in_registers ? 4 : 1;
  const auto from_shared = [&]<class E>(Type<E>, int number, bool turned, int x, int k) {
    const Descriptor from(first.registers[register_of(i, number)]);
    E value;
    std::memcpy(&value,
                first.cta->shared_at(from.place(turned, static_cast<uint64_t>(x),
                                                static_cast<uint64_t>(k), sizeof(E)),
                                     sizeof(E)),
                sizeof value);
    return static_cast<double>(static_cast<float>(value));
  };
  double a[16][depth], b[depth][most];
  const auto row = static_cast<int>((&first - first.cta->threads.data()) / warp_size % 4) * 16;
  for (int lane = 0; lane < warp_size && in_registers; ++lane)
    for (int r = 0; r < 4; ++r)
      for (int e = 0; e < together; ++e)
        a[lane / 4 + r % 2 * 8][lane % 4 * together + e + r / 2 * 4 * together] =
            element<T>(lane_of(warp, lane), register_of(i, of_d + r), e);
  for (int x = 0; x < 16 && !in_registers; ++x)
    for (int k = 0; k < depth; ++k)
      a[x][k] = from_shared(Type<T>(), of_d, (i.immediate & a_turned) != 0, row + x, k);
  for (int k = 0; k < depth; ++k)
    for (int x = 0; x < columns; ++x)
      b[k][x] = from_shared(Type<B>(), of_d + of_a, (i.immediate & b_turned) != 0, x, k);
  const bool adds = first.holds(register_of(i, of_d + of_a + 1));
  const bool is_negative = ((i.immediate & a_negative) != 0) != ((i.immediate & b_negative) != 0);
  for (int lane = 0; lane < warp_size; ++lane)
    for (int r = 0; r < of_d; ++r) {
      Thread& t = lane_of(warp, lane);
      const int x = lane / 4 + r % 4 / 2 * 8, y = r / 4 * 8 + lane % 4 * 2 + r % 2;
      double sum = 0;
      for (int k = 0; k < depth; ++k) sum += a[x][k] * b[k][y];
      if (is_negative) sum = -sum;
      const Sum before = adds ? t.read<Sum>(register_of(i, r)) : 0;
      if constexpr (std::is_same_v<Sum, float>) {
        t.write(register_of(i, r), before + static_cast<float>(sum));
      } else {
        t.write(register_of(i, r), stored<Sum, stops>(before + sum));
      }
    }
}

ExecuteWarp find_warpgroup_product(const Opcode& o) {
  if (o.has("s32") && o.has("s8"))
    return o.has("satfinite") ? multiply_warpgroup<int8_t, 32, int32_t, true>
                              : multiply_warpgroup<int8_t, 32, int32_t>;
  if (std::count(o.words.begin(), o.words.end(), "f32") != 1) return nullptr;
  if (o.has("bf16")) return multiply_warpgroup<Brain, 16>;
  if (o.has("f16")) return multiply_warpgroup<Half, 16>;
  if (o.has("tf32")) return multiply_warpgroup<Tensor32, 8>;
  return of_f8(o, []<class A, class B>(Type<A>, Type<B>) -> ExecuteWarp {
    return multiply_warpgroup<A, 32, float, false, B>;
  });
}

}  // namespace

ExecuteWarp find_matrix_operation(const Opcode& o) {
  const bool is_transposed = o.has("trans");
  if (o.name() == "ldmatrix") return is_transposed ? load_matrices<true> : load_matrices<false>;
  if (o.name() == "stmatrix") return is_transposed ? store_matrices<true> : store_matrices<false>;
  if (o.name() == "mma") return find_product(o);
  if (o.name() == "wgmma") return find_warpgroup_product(o);
  return nullptr;
}

}  // namespace bs::emulator
