#include <bs/kernels/cuda/attention/decode_attention_plan.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::cuda;

namespace {

constexpr int h200 = 227 * 1024, a100 = 163 * 1024, small = 99 * 1024;

bool fits(const DecodeCase& c) { return decode_kernel(c).dim > 0; }

}  // namespace

TEST_CASE("decode_attention: which problems run on its kernels") {
  DecodeCase c{bf16, 1, 128, 128, 0, h200};
  CHECK(fits(c));
  c.queries = 16;
  CHECK(fits(c));
  c.queries = 17;
  CHECK_FALSE(fits(c));
  c.queries = 1;
  for (const unsigned rules :
       {unsigned{device::rule_window}, device::rule_softcap | device::rule_slopes,
        device::rule_bias | device::rule_mask, device::rule_table | device::rule_bits}) {
    c.rules = rules;
    CHECK(fits(c));
  }
  for (const unsigned rules : {unsigned{device::rule_dropout}, unsigned{device::rule_ragged}}) {
    c.rules = rules;
    CHECK_FALSE(fits(c));
  }
  CHECK(fits({f16, 1, 8, 256, 0, small}));
  CHECK(fits({f32, 1, 128, 128, 0, small}));
  CHECK_FALSE(fits({f32, 1, 64, 136, 0, h200}));
  CHECK_FALSE(fits({f64, 1, 64, 64, 0, h200}));
  CHECK_FALSE(fits({i32, 1, 64, 64, 0, h200}));
}

TEST_CASE("decode_attention: what is launched fits every GPU") {
  for (const int most : {h200, a100, small})
    for (const DType dtype : {f16, bf16, f32})
      for (int dim = 8; dim <= 256; dim += 8) {
        const DecodeKernel k = decode_kernel({dtype, 1, dim, 8, 0, most});
        if (k.dim == 0) {
          CHECK((dtype == f32 && dim > 128));
          continue;
        }
        CHECK(k.dim >= dim);
        CHECK(k.dim < dim + 32);
        CHECK(k.stages >= 2);
        CHECK(k.shared_bytes() <= most);
        // A multiprocessor has 1 KB more than a CTA can have, and keeps 1 KB of each.
        CHECK(k.ctas * (k.shared_bytes() + 1024) <= most + 1024);
      }
}

TEST_CASE("decode_attention: three microseconds of an H200's memory are on their way") {
  for (const int dim : {64, 128, 192, 256}) {
    const DecodeKernel k = decode_kernel({bf16, 1, dim, dim, 0, h200});
    CHECK(k.ctas * k.warps * (k.stages - 1) * k.stage_bytes() > 96 * 1024);
  }
}

TEST_CASE("decode_attention: heads that share keys fill a tile") {
  CHECK(decode_heads(1, 1, true) == 1);
  CHECK(decode_heads(1, 8, true) == 8);
  CHECK(decode_heads(1, 32, true) == 16);
  CHECK(decode_heads(3, 8, true) == 5);
  CHECK(decode_heads(16, 8, true) == 1);
  CHECK(decode_heads(1, 8, false) == 1);
}

TEST_CASE("decode_attention: keys are cut so that the GPU is full") {
  CHECK(decode_parts(264, 8, 100) == 1);      // too few keys
  CHECK(decode_parts(264, 8, 300) == 2);      // parts of 128 at least
  CHECK(decode_parts(264, 8, 65536) == 33);   // one wave of all
  CHECK(decode_parts(264, 64, 16384) == 4);   // 256 of 264
  CHECK(decode_parts(264, 264, 16384) == 1);  // each has a tile of its own
  CHECK(decode_parts(264, 140, 16384) > 1);   // or half of them would wait
  CHECK(decode_parts(264, 100000, 16384) == 1);
  CHECK(decode_parts(264, 8, 0) == 1);
  for (int64_t tiles = 1; tiles < 3000; tiles += 7)
    for (const int64_t keys : {1, 127, 128, 1000, 5000, 131072}) {
      const int parts = decode_parts(264, tiles, keys);
      CHECK(parts >= 1);
      CHECK((parts == 1 || parts * 128 <= keys));
      CHECK((parts == 1 || tiles <= 2 * 264));  // a counter for each tile of several parts
    }
}
