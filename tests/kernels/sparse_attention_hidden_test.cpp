// What attention hides may be anything: values that are not finite reach no result of those that do
// not see them.
#include <bs/kernels/copy.h>
#include <bs/kernels/sparse_attention.h>
#include <bs/lib/integers.h>
#include <bs/lib/patterns.h>
#include <bs/tests/kernels/sparse_attention_rules.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <limits>

using namespace bs;
using namespace bs::test;

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

LayoutPtr all_blocks(int rows, int cols, int block) {
  return patterns::dense({.rows = rows, .cols = cols, .block = block});
}

SparseAttentionOptions causal() {
  SparseAttentionOptions o;
  o.causal = true;
  return o;
}

std::vector<double> values(const Tensor& x) { return Reference::of(x).values; }

}  // namespace

TEST_CASE("sparse_attention: what is hidden may be anything") {
  // Not finite in keys and values from 20 on, which queries before 20 do not see, and in padding.
  for (const int block : {8, 32, 64})
    for (const DType dtype : {f64, f32, bf16})
      for (const double poison : {not_a_number, infinity}) {
        constexpr int64_t n = 64, seen = 20, kept = 50;
        const int blocks = static_cast<int>(n) / block;
        AttentionRules r{all_blocks(blocks, blocks, block), causal()};
        r.keep = Reference({2, n});
        for (int64_t j = 0; j < kept; ++j) r.keep.at({0, j}) = r.keep.at({1, j}) = 1;
        const SparseAttentionOptions o = r.options();
        const Shape shape{2, 2, n, 16};
        References in = {random_reference(shape, 1), random_reference(shape, 2),
                         random_reference(shape, 3)};
        const Reference dout = random_reference(shape, 4);
        const auto run = [&] {
          std::vector<Tensor> t;
          for (const Reference& x : in) t.push_back(x.tensor(dtype, test_device()));
          const Tensor d = dout.tensor(dtype, test_device());
          const auto f = sparse_attention(t[0], t[1], t[2], r.layout, o);
          const auto g = sparse_attention_backward(t[0], t[1], t[2], f, d, r.layout, o);
          return std::vector<Tensor>{f.out, f.lse.unsqueeze(3), g.dq, g.dk, g.dv};
        };
        const auto clean = run();
        for (const int64_t j : {int64_t{20}, int64_t{33}, int64_t{55}, int64_t{63}})
          for (int64_t d = 0; d < 16; d += 3)
            in[1].at({0, 1, j, d}) = in[2].at({0, 1, j, d}) = poison;
        const auto poisoned = run();
        for (size_t i = 0; i < 3; ++i) {  // out, lse and dq of queries that see none of them
          check_close("before", Reference::of(poisoned[i].slice(2, 0, seen)),
                      Reference::of(clean[i].slice(2, 0, seen)),
                      i == 1 ? 1e-6 : 64 * epsilon(dtype) * .1);
          // Not bit for bit: another kernel computes where something is not finite.
          check_close("another entry", Reference::of(poisoned[i].slice(0, 1, 2)),
                      Reference::of(clean[i].slice(0, 1, 2)),
                      i == 1 ? 1e-6 : 64 * epsilon(dtype) * .1);
        }
        for (size_t i = 3; i < 5; ++i)
          for (double x : values(poisoned[i].slice(2, kept, n))) CHECK(x == 0);
        CHECK(std::isnan(Reference::of(poisoned[0]).at({0, 1, 40, 0})));
      }
}

TEST_CASE("sparse_attention: keys that nobody sees, and queries that see none, may be anything") {
  struct Bounds {
    int64_t queries, keys, offset;
    std::optional<int64_t> before;
  };
  for (const int block : {16, 32, 64, 128})
    for (const Bounds& b : {Bounds{150, 203, 20, {}}, Bounds{150, 203, -40, {}},
                            Bounds{203, 160, 0, 30}, Bounds{150, 203, 70, 9}}) {
      const auto blocks = [&](int64_t n) { return static_cast<int>(ceil_div(n, block)); };
      const LayoutPtr layout = all_blocks(blocks(b.queries), blocks(b.keys), block);
      SparseAttentionOptions o = causal();
      o.offset = b.offset;
      o.window_before = b.before;
      if (block > 32) o.sinks = random_reference({2}, 5).tensor(f32, test_device());
      if (block % 64 != 0) o.softcap = 2;
      if (block == 32 || block == 128)
        o.alibi_slopes = random_reference({2}, 6).tensor(f32, test_device());
      const auto sees = [&](int64_t i, int64_t j) {
        const int64_t d = j - i - b.offset;
        return d <= 0 && d >= -b.before.value_or(1000);
      };
      const int64_t dim = b.before ? 192 : 64;
      const Shape of_queries{1, 2, b.queries, dim}, of_keys{1, 1, b.keys, dim};
      References in = {random_reference(of_queries, 1), random_reference(of_keys, 2),
                       random_reference(of_keys, 3), random_reference(of_queries, 4)};
      const auto run = [&] {
        std::vector<Tensor> t;
        for (const Reference& x : in) t.push_back(x.tensor(bf16, test_device()));
        const auto f = sparse_attention(t[0], t[1], t[2], layout, o);
        const auto g = sparse_attention_backward(t[0], t[1], t[2], f, t[3], layout, o);
        return std::vector<Tensor>{f.out, g.dq, g.dk, g.dv};
      };
      const auto clean = run();
      int poisoned = 0;
      for (int64_t j = 0; j < b.keys; ++j) {
        bool seen = false;
        for (int64_t i = 0; i < b.queries; ++i) seen = seen || sees(i, j);
        for (int64_t d = 0; d < dim && !seen; d += 7, ++poisoned)
          in[1].at({0, 0, j, d}) = in[2].at({0, 0, j, d}) = not_a_number;
      }
      for (int64_t i = 0; i < b.queries; ++i) {
        bool any = false;
        for (int64_t j = 0; j < b.keys; ++j) any = any || sees(i, j);
        for (int64_t d = 0; d < dim && !any; d += 5, ++poisoned)
          in[0].at({0, 1, i, d}) = in[3].at({0, 1, i, d}) = infinity;
      }
      CAPTURE(block);
      CAPTURE(b.offset);
      CHECK(poisoned > 0);
      const auto again = run();
      for (size_t i = 0; i < again.size(); ++i)
        check_close("result", Reference::of(again[i]), Reference::of(clean[i]),
                    64 * epsilon(bf16) * .1);
    }
}

TEST_CASE("sparse_attention: gradients of a bias and a table know nothing of what is hidden") {
  for (const int block : {16, 64, 128})
    for (const bool in_queries : {false, true}) {
      constexpr int64_t n = 200, hidden = 77;
      const int blocks = static_cast<int>(ceil_div(n, block));
      AttentionRules r{all_blocks(blocks, blocks, block), causal()};
      r.mask = Reference({1, 1, n, n});
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < n; ++j)
          r.mask.at({0, 0, i, j}) = (in_queries ? i : j) == hidden ? 0 : 1;
      SparseAttentionOptions o = r.options();
      o.bias = random_reference({1, 2, n, n}, 5).tensor(bf16, test_device());
      o.relative_bias = random_reference({2, 2 * 50 + 1}, 6).tensor(f32, test_device());
      const Shape shape{2, 2, n, 64};
      References in = {random_reference(shape, 1), random_reference(shape, 2),
                       random_reference(shape, 3), random_reference(shape, 4)};
      const auto run = [&] {
        std::vector<Tensor> t;
        for (const Reference& x : in) t.push_back(x.tensor(bf16, test_device()));
        const auto f = sparse_attention(t[0], t[1], t[2], r.layout, o);
        const auto g = sparse_attention_backward(t[0], t[1], t[2], f, t[3], r.layout, o,
                                                 {.bias = true, .relative_bias = true});
        return std::vector<Tensor>{g.dbias, g.drelative_bias};
      };
      const auto clean = run();
      for (int64_t d = 0; d < 64; d += 5)
        for (const size_t which :
             in_queries ? std::array<size_t, 2>{0, 3} : std::array<size_t, 2>{1, 2})
          in[which].at({1, 0, hidden, d}) = d % 2 ? infinity : not_a_number;
      const auto again = run();
      for (size_t i = 0; i < again.size(); ++i) {
        const Reference before = Reference::of(clean[i]);
        check_close(i == 0 ? "dbias" : "dtable", Reference::of(again[i]), before,
                    64 * epsilon(bf16) * .1 * std::max(1.0, largest(before)));
      }
    }
}

TEST_CASE("sparse_attention: what does not see may be anything") {
  // A query that is not finite gives its gradient to no key that it does not see.
  for (const int block : {8, 32, 64})
    for (const DType dtype : {f64, f32, bf16}) {
      constexpr int64_t n = 64, from = 20;
      const AttentionRules r{
          all_blocks(static_cast<int>(n) / block, static_cast<int>(n) / block, block), causal()};
      const Shape shape{1, 1, n, 16};
      References in = {random_reference(shape, 1), random_reference(shape, 2),
                       random_reference(shape, 3), random_reference(shape, 4)};
      const auto run = [&] {
        std::vector<Tensor> t;
        for (const Reference& x : in) t.push_back(x.tensor(dtype, test_device()));
        const auto f = sparse_attention(t[0], t[1], t[2], r.layout, r.plain);
        const auto g = sparse_attention_backward(t[0], t[1], t[2], f, t[3], r.layout, r.plain);
        return std::vector<Tensor>{g.dk, g.dv};
      };
      const auto clean = run();
      for (int64_t i : {int64_t{3}, from - 1})
        for (int64_t d = 0; d < 16; d += 5)
          in[0].at({0, 0, i, d}) = in[3].at({0, 0, i, d}) = not_a_number;
      const auto poisoned = run();
      for (size_t i = 0; i < 2; ++i) {
        check_close("after", Reference::of(poisoned[i].slice(2, from, n)),
                    Reference::of(clean[i].slice(2, from, n)), 64 * epsilon(dtype) * .1);
        CHECK(std::isnan(Reference::of(poisoned[i]).at({0, 0, 2, 0})));
      }
    }
}
