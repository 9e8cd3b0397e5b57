// Attention of few queries to many keys, as decoding asks for, against naive loops in double.
#include <bs/kernels/copy.h>
#include <bs/kernels/paged_attention.h>
#include <bs/tests/kernels/sparse_attention_cases.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <numeric>

using namespace bs;
using namespace bs::test;

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
const std::vector<DType> floating = {f32, f16, bf16};

/// The last queries of so many keys, which see all that lie before them.
AttentionRules last_of(const LayoutPtr& layout, const Sizes& s) {
  AttentionRules r{layout};
  r.plain.causal = true;
  r.plain.first_query = s.keys - s.queries;
  return r;
}

LayoutPtr blocks_of(const Sizes& s, int block) {
  const auto count = static_cast<int>((s.keys + block - 1) / block);
  return all_blocks(count, count, block);
}

References random_inputs(const Sizes& s) {
  References in;
  for (const Shape& shape : shapes(s)) in.push_back(random_reference(shape, 1 + in.size()));
  return in;
}

/// Inputs as `dtype` holds them.
References rounded(References in, DType dtype) {
  for (Reference& x : in) x = Reference::of(x.tensor(dtype, Device::cpu()));
  return in;
}

SparseAttentionResult run(const References& in, const AttentionRules& r, DType dtype) {
  const auto tensor = [&](size_t i) { return in[i].tensor(dtype, test_device()); };
  SparseAttentionOptions o = r.options();
  if (r.sinks) o.sinks = in[static_cast<size_t>(r.sinks)].tensor(f32, test_device());
  return sparse_attention(tensor(0), tensor(1), tensor(2), r.layout, o);
}

/// The same of pages in falling order, with NaN where they hold no token.
SparseAttentionResult run_pages(const References& in, const AttentionRules& r, DType dtype,
                                int64_t page) {
  const int64_t length = in[1].shape[2], count = (length + page - 1) / page;
  const auto paged = [&](const Reference& x) {
    Reference memory({x.shape[0], x.shape[1], count + 1, page, x.shape[3]});
    std::fill(memory.values.begin(), memory.values.end(), not_a_number);
    for (int64_t b = 0; b < x.shape[0]; ++b)
      for (int64_t h = 0; h < x.shape[1]; ++h)
        for (int64_t i = 0; i < length; ++i)
          for (int64_t e = 0; e < x.shape[3]; ++e)
            memory.at({b, h, count - i / page, i % page, e}) = x.at({b, h, i, e});
    return memory.tensor(dtype, test_device());
  };
  std::vector<int64_t> table(static_cast<size_t>(count));
  std::iota(table.rbegin(), table.rend(), 1);
  return paged_attention(in[0].tensor(dtype, test_device()),
                         {paged(in[1]), paged(in[2]), table, length}, r.layout, r.options());
}

void check_decode(const std::string& what, const Sizes& s, const AttentionRules& r,
                  const std::vector<DType>& dtypes = floating) {
  References in = random_inputs(s);
  if (r.sinks) in.push_back(random_reference({s.heads}, 9));
  for (const DType dtype : dtypes) {
    References held = rounded(in, dtype);
    if (r.sinks) held[3] = in[3];
    const Reference expected = attend(r, held);
    const SparseAttentionResult result = run(held, r, dtype);
    check_close(what, Reference::of(result.out), expected, 16 * epsilon(dtype) * largest(expected));
    const SparseAttentionResult again = run(held, r, dtype);
    CHECK(same_bits(result.out, again.out));
    CHECK(same_bits(result.lse, again.lse));
  }
}

}  // namespace

TEST_CASE("decode_attention: heads that share keys") {
  for (const int64_t group : {1, 2, 4, 8, 16, 20}) {
    const Sizes s{2, 2 * group, 2, 1, 300, 64, 64};
    check_decode(format("groups of {}", group), s, last_of(blocks_of(s, 64), s));
  }
}

TEST_CASE("decode_attention: widths of keys and of values") {
  for (const int64_t dim : {8, 64, 80, 96, 128, 192, 256}) {
    const Sizes s{1, 4, 2, 1, 150, dim, dim};
    check_decode(format("head_dim {}", dim), s, last_of(blocks_of(s, 32), s));
  }
  const Sizes wide{1, 4, 1, 1, 150, 64, 128}, narrow{1, 4, 1, 1, 150, 128, 24};
  check_decode("wider values", wide, last_of(blocks_of(wide, 32), wide));
  check_decode("narrower values", narrow, last_of(blocks_of(narrow, 32), narrow));
}

TEST_CASE("decode_attention: lengths and blocks") {
  for (const int block : {8, 16, 32, 64, 128})
    for (const int64_t keys : {1, 15, 16, 17, 127, 128, 129, 513}) {
      const Sizes s{1, 4, 2, 1, keys, 32, 32};
      check_decode(format("{} keys in blocks of {}", keys, block), s,
                   last_of(blocks_of(s, block), s));
    }
}

TEST_CASE("decode_attention: a layout for more keys than there are yet") {
  Sizes s{2, 4, 2, 1, 90, 32, 32};
  for (const int block : {16, 128}) {
    const AttentionRules r = last_of(all_blocks(1024 / block, 1024 / block, block), s);
    check_decode("capacity", s, r);
  }
}

TEST_CASE("decode_attention: keys of several CTAs") {
  for (const int64_t keys : {256, 1000, 5000}) {
    const Sizes s{1, 4, 2, 1, keys, 64, 64};
    check_decode(format("{} keys", keys), s, last_of(blocks_of(s, 64), s));
  }
  const Sizes many{70, 8, 2, 1, 600, 16, 16};  // 140 tiles: the GPU ends in waves
  check_decode("140 tiles", many, last_of(blocks_of(many, 32), many), {f16});
}

TEST_CASE("decode_attention: several queries, in one row of blocks and in two") {
  for (const int64_t queries : {2, 3, 5, 16})
    for (const int64_t keys : {40, 300})
      for (const int64_t heads : {2, 12}) {
        const Sizes s{2, heads, 2, queries, keys, 32, 32};
        for (const int block : {8, 32, 128})
          check_decode(format("{} queries of {} heads in blocks of {}", queries, heads, block), s,
                       last_of(blocks_of(s, block), s), {f16});
      }
}

TEST_CASE("decode_attention: lse is what it is among queries that another kernel takes") {
  const Sizes many{2, 4, 2, 20, 500, 32, 32}, few{2, 4, 2, 4, 500, 32, 32};
  const LayoutPtr layout = blocks_of(many, 32);
  for (const DType dtype : floating) {
    References in = rounded(random_inputs(many), dtype);
    const Tensor all = run(in, last_of(layout, many), dtype).lse;
    in[0] = Reference::of(contiguous(in[0].tensor(f64, Device::cpu()).slice(2, 16, 20)));
    const Tensor lse = run(in, last_of(layout, few), dtype).lse;
    check_close("lse", Reference::of(lse), Reference::of(contiguous(all.slice(2, 16, 20))), 1e-5);
  }
}

TEST_CASE("decode_attention: blocks of the pattern alone, the same for all heads or not") {
  const Sizes s{2, 4, 2, 3, 500, 32, 32};
  for (const int heads : {1, 4, 8})
    for (const int block : {16, 64}) {
      const int count = (500 + block - 1) / block;
      check_decode("pattern", s, last_of(some_blocks(heads, count, count, block, .4, 3), s));
    }
}

TEST_CASE("decode_attention: terms of scores, windows, padding and sinks") {
  const Sizes s{2, 4, 2, 3, 400, 32, 32};
  AttentionRules r = last_of(blocks_of(s, 32), s);
  r.plain.window_before = 150;
  check_decode("window", s, r);
  r.plain.softcap = .7;
  check_decode("window and softcap", s, r);
  r = last_of(blocks_of(s, 32), s);
  r.slopes = random_reference({s.heads}, 5, .01, .1);
  check_decode("slopes", s, r);
  r = last_of(blocks_of(s, 32), s);
  r.keep = Reference({s.batch, s.keys});
  for (int64_t j = 0; j < s.keys; ++j) r.keep.at({0, j}) = r.keep.at({1, j}) = j % 3 != 0;
  check_decode("padding", s, r);
  r = last_of(blocks_of(s, 32), s);
  r.sinks = 3;
  check_decode("sinks", s, r);
  r = last_of(blocks_of(s, 32), s);
  r.mask = random_mask({2, 4, 3, 400}, 6);
  check_decode("mask", s, r);
}

TEST_CASE("decode_attention: queries that see no key give zeros") {
  const Sizes s{1, 2, 1, 2, 300, 32, 32};
  AttentionRules r = last_of(blocks_of(s, 32), s);
  r.plain.offset = -400;
  for (const DType dtype : floating) {
    const SparseAttentionResult result = run(random_inputs(s), r, dtype);
    CHECK(largest(Reference::of(result.out)) == 0);
    for (const double x : Reference::of(result.lse).values)
      CHECK(x == -std::numeric_limits<double>::infinity());
  }
}

TEST_CASE("decode_attention: what is hidden may be anything") {
  for (const int64_t keys : {100, 700})
    for (const DType dtype : floating) {
      const Sizes s{1, 4, 2, 4, keys, 32, 32};
      AttentionRules r = last_of(blocks_of(s, 32), s);
      r.keep = Reference({1, keys});
      std::fill(r.keep.values.begin(), r.keep.values.end(), 1);
      r.keep.at({0, 5}) = 0;
      References in = rounded(random_inputs(s), dtype);
      const Reference clean = Reference::of(run(in, r, dtype).out);
      for (const int64_t key : {int64_t{5}, keys - 2})  // padding; and two queries see the latter
        for (int64_t kv = 0; kv < 2; ++kv)
          in[1].at({0, kv, key, 3}) = in[2].at({0, kv, key, 7}) = not_a_number;
      const Reference spoilt = Reference::of(run(in, r, dtype).out);
      for (int64_t h = 0; h < 4; ++h)
        for (int64_t i = 0; i < 4; ++i)
          for (int64_t e = 0; e < 32; ++e) {
            const double x = spoilt.at({0, h, i, e});
            if (i >= 2)
              CHECK(std::isnan(x));
            else  // made anew by another kernel, so not bit for bit
              CHECK(std::abs(x - clean.at({0, h, i, e})) <= 16 * epsilon(dtype) * largest(clean));
          }
    }
}

TEST_CASE("decode_attention: pages wherever they lie") {
  for (const int64_t page : {1, 20, 64})
    for (const int64_t keys : {1, 70, 600})
      for (const DType dtype : floating) {
        const Sizes s{2, 8, 2, 1, keys, 64, 32};
        const AttentionRules r = last_of(blocks_of(s, 32), s);
        const References in = rounded(random_inputs(s), dtype);
        const Reference expected = attend(r, in);
        const SparseAttentionResult paged = run_pages(in, r, dtype, page);
        check_close(format("{} keys in pages of {}", keys, page), Reference::of(paged.out),
                    expected, 16 * epsilon(dtype) * largest(expected));
      }
}

TEST_CASE("decode_attention: rows of pages are made anew where they lie") {
  const Sizes s{1, 2, 1, 2, 90, 32, 32};
  const AttentionRules r = last_of(blocks_of(s, 32), s);
  References in = rounded(random_inputs(s), f16);
  const Reference clean = Reference::of(run_pages(in, r, f16, 20).out);
  for (int64_t e = 0; e < 32; ++e) in[2].at({0, 0, 89, e}) = not_a_number;  // of the last alone
  const Reference spoilt = Reference::of(run_pages(in, r, f16, 20).out);
  for (int64_t h = 0; h < 2; ++h)
    for (int64_t e = 0; e < 32; ++e) {
      CHECK(std::abs(spoilt.at({0, h, 0, e}) - clean.at({0, h, 0, e})) <=
            16 * epsilon(f16) * largest(clean));
      CHECK(std::isnan(spoilt.at({0, h, 1, e})));
    }
}
