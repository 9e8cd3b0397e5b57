#include <bs/lib/layout.h>
#include <bs/lib/sparse_tensor.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <latch>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

using namespace bs;
using namespace bs::test;

namespace {

/// A mask of 0s and 1s, each kept with probability `density`.
Reference random_mask(const Shape& shape, double density, uint64_t seed) {
  Reference mask = random_reference(shape, seed, 0, 1);
  for (double& v : mask.values) v = v < density ? 1 : 0;
  return mask;
}

std::vector<int32_t> read(const int32_t* pointer, int64_t count, Device device) {
  const Tensor t =
      Tensor::from_blob(const_cast<int32_t*>(pointer), {count}, i32, device).to(Device::cpu());
  return {t.data<int32_t>(), t.data<int32_t>() + count};
}

/// Every array of the view against loops over the mask.
void check_view(const Layout& layout, const Reference& mask, Device device) {
  const LayoutView v = layout.view(device);
  const int heads = layout.heads();
  const int rows = layout.rows();
  const int cols = layout.cols();
  REQUIRE(mask.shape == Shape{heads, rows, cols});
  std::vector<int32_t> row_offsets{0}, head_of, row_of, col_of;
  for (int h = 0; h < heads; ++h)
    for (int r = 0; r < rows; ++r) {
      for (int c = 0; c < cols; ++c)
        if (mask.at({h, r, c}) != 0) {
          head_of.push_back(h);
          row_of.push_back(r);
          col_of.push_back(c);
        }
      row_offsets.push_back(static_cast<int32_t>(col_of.size()));
    }
  std::vector<int32_t> col_offsets{0}, transposed, transposed_row;
  for (int h = 0; h < heads; ++h)
    for (int c = 0; c < cols; ++c) {
      for (size_t i = 0; i < col_of.size(); ++i)
        if (head_of[i] == h && col_of[i] == c) {
          transposed.push_back(static_cast<int32_t>(i));
          transposed_row.push_back(row_of[i]);
        }
      col_offsets.push_back(static_cast<int32_t>(transposed.size()));
    }
  const auto nnz = static_cast<int64_t>(col_of.size());
  CHECK(layout.nnz() == nnz);
  CHECK(v.block == layout.block());
  CHECK(v.heads == heads);
  CHECK(v.rows == rows);
  CHECK(v.cols == cols);
  CHECK(v.nnz == nnz);
  CHECK(read(v.row_offsets, heads * rows + 1, device) == row_offsets);
  CHECK(read(v.head_of, nnz, device) == head_of);
  CHECK(read(v.row_of, nnz, device) == row_of);
  CHECK(read(v.col_of, nnz, device) == col_of);
  CHECK(read(v.col_offsets, heads * cols + 1, device) == col_offsets);
  CHECK(read(v.transposed, nnz, device) == transposed);
  CHECK(read(v.transposed_row, nnz, device) == transposed_row);
}

LayoutPtr layout_of(const Reference& mask, int block = 16, DType dtype = u8) {
  return Layout::from_mask(mask.tensor(dtype, test_device()), block);
}

}  // namespace

TEST_CASE("layout from a mask") {
  const Shape shapes[] = {{1, 1, 1}, {1, 8, 8}, {3, 5, 7}, {2, 1, 9},  {2, 9, 1},
                          {0, 4, 4}, {2, 0, 3}, {2, 3, 0}, {4, 17, 6}, {1, 40, 64}};
  for (const Shape& shape : shapes)
    for (double density : {0.0, 0.1, 0.5, 1.0}) {
      CAPTURE(to_string(shape));
      CAPTURE(density);
      const Reference mask = random_mask(shape, density, 7);
      const LayoutPtr layout = layout_of(mask);
      check_view(*layout, mask, Device::cpu());
      check_view(*layout, mask, test_device());
      CHECK(Reference::of(layout->mask()).values == mask.values);
      const double all = static_cast<double>(shape.product());
      const double kept = static_cast<double>(layout->nnz());
      CHECK(layout->density() == (all > 0 ? kept / all : 0.0));
      CHECK(layout->flops(10) == 2 * kept * 16 * 16 * 10);
    }
}

TEST_CASE("layout from a mask of any dtype and any strides") {
  const Reference mask = random_mask({2, 6, 4}, 0.4, 3);
  const LayoutPtr expected = layout_of(mask);
  for (DType dtype : {boolean, u8, i32, i64, f16, bf16, f32, f64})
    CHECK(*layout_of(mask, 16, dtype) == *expected);

  const Tensor values = mask.tensor(f32, test_device());
  Reference turned({2, 4, 6});
  for (int h = 0; h < 2; ++h)
    for (int r = 0; r < 6; ++r)
      for (int c = 0; c < 4; ++c) turned.at({h, c, r}) = mask.at({h, r, c});
  CHECK(*Layout::from_mask(values.transpose(1, 2), 16) == *layout_of(turned));
  CHECK(*Layout::from_mask(values.select(0, 1), 16) == *layout_of([&] {
    Reference one({1, 6, 4});
    std::copy_n(mask.values.begin() + 24, 24, one.values.begin());
    return one;
  }()));
  const Tensor same = values.slice(0, 0, 1).expand({3, 6, 4});
  CHECK(Layout::from_mask(same, 16)->nnz() == 3 * Layout::from_mask(same.select(0, 0), 16)->nnz());
}

TEST_CASE("layout from blocks in any order") {
  const Reference mask = random_mask({3, 9, 11}, 0.3, 5);
  std::vector<BlockIndex> blocks;
  for (int h = 0; h < 3; ++h)
    for (int r = 0; r < 9; ++r)
      for (int c = 0; c < 11; ++c)
        if (mask.at({h, r, c}) != 0) blocks.push_back({h, r, c});
  const LayoutPtr expected = layout_of(mask, 32);
  std::mt19937 generator(1);
  for (int i = 0; i < 5; ++i) {
    CHECK(*Layout::from_blocks(3, 9, 11, 32, blocks) == *expected);
    std::shuffle(blocks.begin(), blocks.end(), generator);
  }
  CHECK(Layout::from_blocks(3, 9, 11, 32, {})->nnz() == 0);
}

TEST_CASE("layout counts") {
  // Head 0 has 3 blocks, head 1 none, head 2 has 5.
  const Reference mask = [] {
    Reference m({3, 3, 4});
    m.at({0, 0, 1}) = m.at({0, 2, 1}) = m.at({0, 2, 3}) = 1;
    for (int c = 0; c < 4; ++c) m.at({2, 1, c}) = 1;
    m.at({2, 2, 0}) = 1;
    return m;
  }();
  const LayoutPtr layout = layout_of(mask, 8);
  CHECK(layout->nnz(0) == 3);
  CHECK(layout->nnz(1) == 0);
  CHECK(layout->nnz(2) == 5);
  CHECK(layout->max_row() == 4);
  CHECK(layout->max_col() == 2);
  CHECK(layout->height() == 24);
  CHECK(layout->width() == 32);
  CHECK(layout->contains(0, 2, 3));
  CHECK_FALSE(layout->contains(0, 2, 2));
  CHECK_FALSE(layout->contains(1, 0, 0));
  CHECK_FALSE(layout->contains(3, 0, 0));
  CHECK_FALSE(layout->contains(0, -1, 0));
  CHECK_THROWS_WITH_AS(layout->nnz(3), "layout: head 3 of 3", Error);
}

TEST_CASE("layout transposed") {
  const Reference mask = random_mask({3, 5, 8}, 0.4, 11);
  const LayoutPtr layout = layout_of(mask);
  const LayoutPtr turned = layout->transpose();
  Reference expected({3, 8, 5});
  for (int h = 0; h < 3; ++h)
    for (int r = 0; r < 5; ++r)
      for (int c = 0; c < 8; ++c) expected.at({h, c, r}) = mask.at({h, r, c});
  check_view(*turned, expected, Device::cpu());
  check_view(*turned, expected, test_device());
  CHECK(*turned->transpose() == *layout);
  CHECK(turned->transpose()->hash() == layout->hash());
}

TEST_CASE("layout hash and equality") {
  const Reference mask = random_mask({2, 4, 4}, 0.5, 2);
  const LayoutPtr a = layout_of(mask);
  CHECK(*a == *layout_of(mask));
  CHECK(a->hash() == layout_of(mask)->hash());
  CHECK_FALSE(*a == *layout_of(mask, 32));
  CHECK(a->hash() != layout_of(mask, 32)->hash());
  for (size_t i = 0; i < mask.values.size(); ++i) {
    Reference other = mask;
    other[i] = 1 - other[i];
    CHECK_FALSE(*a == *layout_of(other));
    CHECK(a->hash() != layout_of(other)->hash());
  }
  // The same blocks in other extents.
  CHECK_FALSE(*Layout::from_blocks(1, 2, 4, 8, {{0, 0, 0}}) ==
              *Layout::from_blocks(1, 4, 2, 8, {{0, 0, 0}}));
  CHECK_FALSE(*Layout::from_blocks(1, 2, 2, 8, {}) == *Layout::from_blocks(2, 1, 2, 8, {}));
}

TEST_CASE("layout refuses what is no pattern") {
  const Tensor mask = Tensor::empty({4}, u8);
  CHECK_THROWS_WITH_AS(Layout::from_mask(mask, 16),
                       "layout: a mask is [rows, cols] or [heads, rows, cols], not [4]", Error);
  CHECK_THROWS_WITH_AS(layout_of(Reference({1, 2, 2}), 12),
                       "layout: block 12 is none of 8, 16, 32, 64 and 128", Error);
  CHECK_THROWS_WITH_AS(Layout::from_blocks(1, 2, 2, 16, {{0, 1, 1}, {0, 0, 0}, {0, 1, 1}}),
                       "layout: block (head 0, row 1, column 1) is listed twice", Error);
  CHECK_THROWS_WITH_AS(
      Layout::from_blocks(1, 2, 3, 16, {{0, 2, 0}}),
      "layout: block (head 0, row 2, column 0) is outside of 1 heads of 2 x 3 blocks", Error);
  CHECK_THROWS_WITH_AS(
      Layout::from_blocks(1, 2, 3, 16, {{0, 0, -1}}),
      "layout: block (head 0, row 0, column -1) is outside of 1 heads of 2 x 3 blocks", Error);
  CHECK_THROWS_WITH_AS(Layout::from_blocks(-1, 2, 2, 16, {}),
                       "layout: negative extent: -1 heads of 2 x 2 blocks", Error);
  CHECK_THROWS_WITH_AS(Layout::from_blocks(1 << 16, 1 << 16, 4, 16, {}),
                       "layout: 65536 heads of 65536 x 4 blocks need indices of more than 31 bits",
                       Error);
}

TEST_CASE("layout as text") {
  const LayoutPtr layout =
      Layout::from_blocks(3, 2, 3, 16, {{0, 0, 0}, {0, 1, 2}, {1, 0, 0}, {1, 1, 2}, {2, 0, 1}});
  CHECK(to_string(*layout) ==
        "Layout(3 heads of 2 x 3 blocks of 16, 5 kept, density 0.277778)\n"
        "heads 0-1:\n█··\n··█\n"
        "head 2:\n·█·\n···\n");
  // Two blocks a character: whole squares, parts of squares, and the edge's narrow squares.
  const LayoutPtr wide = Layout::from_blocks(
      1, 3, 5, 8, {{0, 0, 0}, {0, 0, 1}, {0, 1, 0}, {0, 1, 1}, {0, 1, 3}, {0, 2, 4}});
  CHECK(to_string(*wide, 3) ==
        "Layout(1 heads of 3 x 5 blocks of 8, 6 kept, density 0.4)\n█▒·\n··█\n");
  CHECK(to_string(*wide, std::numeric_limits<int>::max()) == to_string(*wide, 100));
  CHECK_THROWS_WITH_AS(to_string(*wide, 0), "layout: a picture of width 0", Error);
}

TEST_CASE("layout as text: a character may stand for more blocks than 32 bits count") {
  constexpr int n = 50000;
  const LayoutPtr one = Layout::from_blocks(1, n, n, 8, {{0, n - 1, n - 1}});
  CHECK(to_string(*one, 1).ends_with(", 1 kept, density 4e-10)\n▒\n"));
}

TEST_CASE("layout as a picture") {
  const LayoutPtr layout =
      Layout::from_blocks(2, 2, 4, 16, {{0, 0, 0}, {0, 0, 1}, {0, 0, 3}, {1, 1, 2}});
  CHECK(to_svg(*layout) ==
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"528\" height=\"152\" "
        "font-family=\"sans-serif\" font-size=\"11\">\n"
        "<g transform=\"translate(16 16)\"><text y=\"-4\">head 0, 3 blocks</text>\n"
        "<rect width=\"240\" height=\"120\" fill=\"#eef0f3\"/>\n"
        "<path fill=\"#2f5fb3\" d=\"M0 0h120v60h-120zM180 0h60v60h-60z\"/></g>\n"
        "<g transform=\"translate(272 16)\"><text y=\"-4\">head 1, 1 blocks</text>\n"
        "<rect width=\"240\" height=\"120\" fill=\"#eef0f3\"/>\n"
        "<path fill=\"#2f5fb3\" d=\"M120 60h60v60h-60z\"/></g>\n"
        "</svg>\n");
}

TEST_CASE("layout keeps what is derived from it, by key and type") {
  const LayoutPtr layout = Layout::from_blocks(1, 2, 2, 16, {{0, 0, 0}});
  struct Key {
    int64_t width;
    bool transposed;
    bool operator==(const Key&) const = default;
  };
  int made = 0;
  const auto number = [&] { return ++made; };
  const Kept<int> first = layout->derived<int>(Key{7, false}, number);
  CHECK(&*layout->derived<int>(Key{7, false}, number) == &*first);
  CHECK(*layout->derived<int>(Key{7, true}, number) == 2);
  CHECK(*layout->derived<int>(7, number) == 3);  // of another type
  CHECK(*layout->derived<std::string>(7, [] { return std::string("text"); }) == "text");
  CHECK(*layout->derived<int>(Key{7, false}, number) == 1);
  // What is derived may be made of what else is.
  CHECK(*layout->derived<int>(9, [&] { return 10 * *layout->derived<int>(7, number); }) == 30);
}

TEST_CASE("layout: threads share what is derived, each value made once while it is kept") {
  const LayoutPtr layout = Layout::from_blocks(1, 2, 2, 16, {{0, 0, 0}, {0, 1, 1}});
  constexpr int keys = 16;  // all of them are kept
  std::vector<std::atomic<int>> made(keys);
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < 200; ++i) {
          const int key = (i * (2 * t + 1) + t) % keys;
          const Kept<std::vector<int>> value = layout->derived<std::vector<int>>(key, [&] {
            ++made[static_cast<size_t>(key)];
            return std::vector<int>(100, key + static_cast<int>(layout->nnz()));
          });
          if (i % 50 == 0) value.pin();
          wrong += *value == std::vector<int>(100, key + 2) ? 0 : 1;
        }
      });
  }
  CHECK(wrong == 0);
  for (const std::atomic<int>& times : made) CHECK(times == 1);
}

TEST_CASE("cache: values are dropped and made again by several threads") {
  Cache cache(3);
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < 300; ++i) {
          const int key = (i + 5 * t) % 11;
          wrong += *cache.get<int>(key, [&] { return 7 * key; }) == 7 * key ? 0 : 1;
          wrong += cache.size() <= 4 ? 0 : 1;
        }
      });
  }
  CHECK(wrong == 0);
}

namespace {

/// A key that cannot be copied while `full`, as where memory runs out.
struct Copied {
  explicit Copied(bool is_full) : full(is_full) {}
  Copied(const Copied& other) : full(other.full) {
    if (full) throw std::bad_alloc();
  }
  Copied& operator=(const Copied&) = delete;
  bool operator==(const Copied&) const { return true; }
  bool full;
};

}  // namespace

TEST_CASE("cache: a key that found no memory leaves nothing behind") {
  Cache cache(3);
  const auto seven = [] { return 7; };
  CHECK_THROWS_AS(cache.get<int>(Copied(true), seven), std::bad_alloc);
  CHECK(cache.size() == 0);
  CHECK(*cache.get<int>(Copied(false), seven) == 7);
  CHECK(cache.size() == 1);
}

TEST_CASE("cache: what was not asked for longest goes first, and what is pinned stays") {
  Cache cache(3);
  int made = 0;
  const auto get = [&](int key) { return cache.get<int>(key, [&] { return ++made; }); };
  const Kept<int> pinned = get(0);
  pinned.pin();
  for (const int key : {1, 2, 3}) get(key);
  CHECK(cache.size() == 4);
  const Kept<int> held = get(1);  // now the last one asked for
  get(4);
  CHECK(cache.size() == 4);
  CHECK(*get(0) == 1);
  CHECK(*get(1) == 2);
  CHECK(*get(3) == 4);
  CHECK(*get(2) == 6);  // made again
  for (int key = 10; key < 20; ++key) get(key);
  CHECK(*held == 2);  // lives as long as it is held
  CHECK(*get(0) == 1);
}

TEST_CASE("cache: threads share what one makes, and do not wait for another's") {
  Cache cache(8);
  std::atomic<int> made = 0;
  std::latch slow_begun(1), other_done(1);
  std::thread slow([&] {
    cache.get<int>(1, [&] {
      slow_begun.count_down();
      other_done.wait();  // a lock held now would never be given back
      return ++made;
    });
  });
  slow_begun.wait();
  CHECK(*cache.get<int>(2, [] { return 5; }) == 5);
  other_done.count_down();
  CHECK(*cache.get<int>(1, [&] { return ++made; }) == 1);
  slow.join();
  // What fails is tried again.
#ifndef __SANITIZE_THREAD__  // whose call_once never ends where one has thrown before
  CHECK_THROWS_AS(cache.get<int>(3, []() -> int { throw Error("no"); }), Error);
  CHECK(*cache.get<int>(3, [] { return 7; }) == 7);
#endif
}

TEST_CASE("sparse tensor checks that values fit the layout") {
  const LayoutPtr layout = Layout::from_blocks(1, 2, 2, 16, {{0, 0, 0}, {0, 1, 0}, {0, 1, 1}});
  check_sparse("sdd", {layout, Tensor::empty({3, 16, 16}, f32)});
  check_sparse("sdd", {layout, Tensor::empty({4, 2, 3, 16, 16}, bf16)});
  const std::string wanted = ", which asks for [..., 3, 16, 16]";
  for (const Shape& shape : {Shape{4, 16, 16}, Shape{3, 16, 8}, Shape{3, 8, 16}, Shape{16, 16}})
    CHECK_THROWS_WITH_AS(
        check_sparse("sdd", {layout, Tensor::empty(shape, f32)}),
        ("sdd: values " + to_string(shape) + " do not fit the layout" + wanted).c_str(), Error);
  CHECK_THROWS_WITH_AS(check_sparse("sdd", {layout, Tensor::empty({3, 16, 16}, i32)}),
                       "sdd: dtype i32 is not supported; expected f64, f32, f16 or bf16", Error);
  CHECK_THROWS_WITH_AS(check_sparse("dsd", {nullptr, Tensor::empty({3, 16, 16}, f32)}),
                       "dsd: a sparse tensor without a layout", Error);
  CHECK_THROWS_WITH_AS(check_sparse("dsd", {layout, {}}), "dsd: a sparse tensor without values",
                       Error);
}
