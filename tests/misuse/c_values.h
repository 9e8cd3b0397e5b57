#pragma once
/** @file Values of the C interface's types: handles and options. */
#include <bs/c/handle.h>
#include <bs/tests/misuse/misuse.h>

#include <cstring>
#include <deque>

namespace bs::test {

/** @brief Handles that arguments point to: see forget_handles. */
struct Handles {
  std::deque<bs_tensor> tensors;
  std::deque<bs_layout> layouts;
  std::vector<bs_attention*> attentions;
  std::vector<bs_transducer*> transducers;

  template <class Saved>
  auto& saved() {
    if constexpr (std::is_same_v<Saved, bs_attention>)
      return (attentions);
    else
      return (transducers);
  }
};
Handles& handles();

template <>
struct Values<const bs_tensor*> {
  using X = const bs_tensor*;
  static X made(const Tensor& t) {
    return t.defined() ? &handles().tensors.emplace_back(bs_tensor{t}) : nullptr;
  }
  static Tensor held(X x) { return x ? x->value : Tensor(); }
  static X draw(Source& from) { return made(Values<Tensor>::draw(from)); }
  static int wrongs(X x) { return test::wrongs(held(x)); }
  static void make_wrong(X& x, int k) { x = made(wrong(held(x), k)); }
  static std::string show(X x) { return test::show(held(x)); }
};

template <>
struct Values<const bs_layout*> {
  using X = const bs_layout*;
  static X made(const LayoutPtr& layout) {
    return layout ? &handles().layouts.emplace_back(bs_layout{layout}) : nullptr;
  }
  static X draw(Source& from) { return made(draw_layout(from)); }
  static int wrongs(X) { return Values<LayoutPtr>::wrongs({}); }
  static void make_wrong(X& x, int k) {
    LayoutPtr layout;
    Values<LayoutPtr>::make_wrong(layout, k);
    x = made(layout);
  }
  static std::string show(X x) { return Values<LayoutPtr>::show(x ? x->value : nullptr); }
};

template <>
struct Values<bs_conv2d_blocks> {
  using X = bs_conv2d_blocks;
  using V = Values<const bs_tensor*>;
  using L = Values<const bs_layout*>;
  static X draw(Source& from) {
    X x{V::draw(from), L::draw(from), 1, 1};
    if (from.chance(.7)) x.values = V::made(Tensor::empty({1, 8, 8}, f32));
    if (from.chance(.2)) x.r = Values<int64_t>::draw(from);
    return x;
  }
  static int wrongs(const X& x) { return V::wrongs(x.values) + L::wrongs(x.layout); }
  static void make_wrong(X& x, int k) {
    const int values = V::wrongs(x.values);
    if (k < values)
      V::make_wrong(x.values, k);
    else
      L::make_wrong(x.layout, k - values);
  }
  static std::string show(const X& x) { return V::show(x.values) + ", " + L::show(x.layout); }
};

/** The sizes of patterns: most of them square, and small. */
template <>
struct Values<bs_size> {
  static std::array<int*, 4> numbers(bs_size& x) { return {&x.heads, &x.rows, &x.cols, &x.block}; }
  static bs_size draw(Source& from) {
    bs_size x{1, 2, 2, 8};
    if (from.chance(.3)) *numbers(x)[static_cast<size_t>(from.below(4))] = Values<int>::draw(from);
    return x;
  }
  static int wrongs(bs_size) { return 4 * Values<int>::wrongs(0); }
  static void make_wrong(bs_size& x, int k) {
    Values<int>::make_wrong(*numbers(x)[static_cast<size_t>(k % 4)], k / 4);
  }
  static std::string show(bs_size x) {
    return format("{} heads of {} x {} blocks of {}", x.heads, x.rows, x.cols, x.block);
  }
};

template <>
struct Values<bs_conv2d_options> {
  using X = bs_conv2d_options;
  static std::array<int64_t*, 9> numbers(X& x) {
    return {&x.stride[0],  &x.stride[1],  &x.dilation[0], &x.dilation[1], &x.padding[0],
            &x.padding[1], &x.padding[2], &x.padding[3],  &x.groups};
  }
  static X draw(Source& from) {
    X x{};
    for (int64_t* number : numbers(x))
      if (from.chance(.15)) *number = Values<int64_t>::draw(from);
    return x;
  }
  static int wrongs(X) { return 9 * Values<int64_t>::wrongs(0); }
  static void make_wrong(X& x, int k) {
    Values<int64_t>::make_wrong(*numbers(x)[static_cast<size_t>(k % 9)], k / 9);
  }
  static std::string show(X x) {
    std::string text;
    for (const int64_t* number : numbers(x)) text += std::to_string(*number) + " ";
    return text;
  }
};

/** A description is numbers alone; most of those drawn are of a product that can be. */
template <>
struct Values<bs_gemm_description> {
  using X = bs_gemm_description;
  static constexpr size_t count = sizeof(X) / sizeof(int);
  static_assert(sizeof(X) % sizeof(int) == 0);

  static X good() {
    constexpr bs_gemm_matrix rows{BS_ELEMENT_F32, 0, 1};
    return {.threadblock = {64, 64, 8},
            .stages = 3,
            .warps = {2, 2, 1},
            .cluster = {},
            .cluster_k = 0,
            .instruction = {1, 1, 1},
            .math_a = BS_ELEMENT_F32,
            .math_b = BS_ELEMENT_F32,
            .accumulator = BS_ELEMENT_F32,
            .op_class = BS_SIMT,
            .operation = BS_MULTIPLY_ADD,
            .a = rows,
            .b = rows,
            .d = rows,
            .c_element = BS_ELEMENT_F32,
            .bias_element = BS_ELEMENT_F32,
            .activation = BS_RELU,
            .swizzle = BS_IDENTITY1,
            .split_k = BS_SPLIT_NONE,
            .batched = 0};
  }
  static X with(const X& x, size_t place, int number) {
    std::array<int, count> numbers{};
    std::memcpy(numbers.data(), &x, sizeof x);
    numbers[place] = number;
    X changed;
    std::memcpy(&changed, numbers.data(), sizeof changed);
    return changed;
  }
  static X draw(Source& from) {
    X x = good();
    x.c_element = from.chance(.5) ? BS_ELEMENT_F32 : BS_NO_ELEMENT;
    x.bias_element = from.chance(.5) ? BS_ELEMENT_F32 : BS_NO_ELEMENT;
    x.batched = from.chance(.3);
    if (from.chance(.3))
      x = with(x, static_cast<size_t>(from.below(static_cast<int>(count))), from.below(4));
    return x;
  }
  static int wrongs(const X&) { return static_cast<int>(count) * Values<int>::wrongs(0); }
  static void make_wrong(X& x, int k) {
    int number = 0;
    Values<int>::make_wrong(number, k / static_cast<int>(count));
    x = with(x, static_cast<size_t>(k) % count, number);
  }
  static std::string show(const X& x) {
    std::string text;
    for (size_t i = 0; i < count; ++i) {
      int number = 0;
      std::memcpy(&number, reinterpret_cast<const char*>(&x) + i * sizeof number, sizeof number);
      text += std::to_string(number) + " ";
    }
    return text;
  }
};

}  // namespace bs::test
