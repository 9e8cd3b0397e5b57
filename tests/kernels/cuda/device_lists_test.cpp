// Lists that kernels make of a pattern, beside those that the host makes of it.
#include <bs/kernels/cuda/attention/sparse_attention_lists.h>
#include <bs/kernels/cuda/block_sparse/block_sparse_strips_fill.h>
#include <bs/lib/cuda/upload.h>
#include <bs/lib/integers.h>
#include <bs/tests/kernels/cuda/attention_tile_lists.h>
#include <bs/tests/support/devices.h>

using namespace bs;
using namespace bs::cuda;

namespace {

std::vector<int32_t> words_of(const Tensor& x) {
  const Tensor host = x.to(Device::cpu());
  return {host.data<int32_t>(), host.data<int32_t>() + host.numel()};
}

AttentionTileLists lists_of(const Layout& layout, const AttentionTiling& tiling) {
  const Device device = test::test_device();
  AttentionTileLists lists{.heads = layout.heads(), .records = {}, .items = {}};
  lists.tiles = static_cast<int>(ceil_div(layout.height(), tiling.rows()));
  const int64_t record = tiling.pieces(layout.block()) + tiling.groups;
  const Tensor records = Tensor::empty({layout.nnz() * record}, i32, device);
  const Tensor items = Tensor::empty({int64_t{lists.heads} * lists.tiles * 4}, i32, device);
  list_tiles(layout.view(device), tiling, lists.tiles, records.data<int32_t>(),
             items.data<int32_t>(), current_stream(device));
  lists.records = words_of(records);
  const std::vector<int32_t> words = words_of(items);
  for (size_t i = 0; i < words.size(); i += 4)
    lists.items.push_back({words[i], words[i + 1], words[i + 2], words[i + 3]});
  return lists;
}

/// Warpgroups' products of an item.
int work_of(const AttentionTileLists& lists, const AttentionTileLists::Item& item, int pieces) {
  int work = 0;
  for (int r = item.begin; r < item.begin + item.count; ++r)
    for (int group = 0; group < 2; ++group)
      work += lists.records[static_cast<size_t>(r * (pieces + 2) + pieces + group)] != 0;
  return work;
}

const bool no_gpu = !test::test_device().is_cuda();

}  // namespace

TEST_CASE("sparse_attention: lists of tiles made on the device hold each block once" *
          doctest::skip(no_gpu)) {
  std::mt19937 random(7);
  for (const int block : {16, 32, 64, 128})
    for (const AttentionTiling tiling :
         {AttentionTiling{2, 128}, AttentionTiling{2, 128, -AttentionReach::far, 0},
          AttentionTiling{2, 128, -37, 45}, AttentionTiling{2, 128, 33, 200}})
      for (const double density : {0.0, 0.05, 0.3, 0.8, 1.0})
        for (const int rows : {0, 1, 2, 5, 13, 40}) {
          const LayoutPtr layout =
              random_layout(random, 1 + rows % 2, rows, 3 + rows / 2 * 3, block, density);
          REQUIRE(lists_tiles(tiling, *layout));
          const AttentionTileLists made = lists_of(*layout, tiling);
          check_tile_lists(made, *layout, tiling);
          const AttentionTileLists host = attention_tile_lists(*layout, tiling);
          const int pieces = tiling.pieces(block);
          for (const auto& item : made.items) {
            const auto same = std::find_if(host.items.begin(), host.items.end(), [&](auto& other) {
              return other.tile == item.tile && layout->heads() == 1;
            });
            if (same == host.items.end()) continue;
            // What fills no tile of its kind is put together in another order.
            CHECK(item.count == same->count);
            CHECK(work_of(made, item, pieces) <= work_of(host, *same, pieces) + 3);
          }
        }
}

TEST_CASE("block-sparse strips counted on the device are those of the host" *
          doctest::skip(no_gpu)) {
  const Device device = test::test_device();
  const Stream stream = current_stream(device);
  std::mt19937 random(5);
  for (const bool transposed : {false, true})
    for (const int side : {1, 2, 4, 8})
      for (const double density : {0.0, 0.1, 0.7})
        for (const int rows : {0, 1, 5, 300}) {
          const LayoutPtr layout = random_layout(random, 1 + rows % 3, rows, 70, 16, density);
          const StripShape shape{.transposed = transposed, .side = side};
          const Strips host = make_strips(*layout, shape);
          const Tensor offsets =
              Tensor::empty({static_cast<int64_t>(host.offsets.size())}, i32, device);
          const Tensor order =
              Tensor::empty({static_cast<int64_t>(host.order.size())}, i32, device);
          count_strips(layout->view(device), shape, host.count, offsets.data<int32_t>(),
                       order.data<int32_t>(), stream);
          CHECK(words_of(offsets) == host.offsets);
          CHECK(words_of(order) == host.order);
        }
}
