#include <bs/kernels/cuda/attention/sparse_attention_tiles.h>

#include <bs/lib/integers.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <numeric>
#include <utility>

namespace bs::cuda {

namespace {

constexpr int most_groups = 3;

/// Keys that lie side by side, and the block rows of each warpgroup that hold them.
struct Piece {
  int key = 0;
  std::array<unsigned, most_groups> rows{};

  /// One bit a warpgroup that keeps any of them.
  int groups() const {
    int bits = 0;
    for (size_t g = 0; g < rows.size(); ++g) bits |= (rows[g] != 0) << g;
    return bits;
  }
};

/// How many take more than twice the mean.
int far_above_mean(const std::vector<int>& work) {
  const int64_t sum = std::accumulate(work.begin(), work.end(), int64_t{0});
  const auto count = static_cast<int64_t>(work.size());
  return static_cast<int>(
      std::count_if(work.begin(), work.end(), [&](int of) { return of * count > 2 * sum; }));
}

class TileMaker {
 public:
  TileMaker(const Layout& layout, const AttentionTiling& tiling)
      : layout_(layout),
        view_(layout.view(Device::cpu())),
        tiling_(tiling),
        block_(layout.block()),
        piece_(tiling.piece(block_)),
        pieces_(tiling.pieces(block_)) {}

  AttentionTileLists make() {
    lists_.heads = layout_.heads();
    lists_.tiles = static_cast<int>(ceil_div(layout_.height(), tiling_.rows()));
    for (int head = 0; head < lists_.heads; ++head) add_head(head);
    return std::move(lists_);
  }

 private:
  void add_head(int head) {
    std::vector<int> work;
    std::vector<AttentionTileLists::Item> items;
    const auto records = [&] { return static_cast<int>(lists_.records.size()) / record(); };
    for (int tile = 0; tile < lists_.tiles; ++tile) {
      work_ = 0;
      const int begin = records();
      add_tile(head, tile);
      items.push_back({tile, begin, records() - begin});
      work.push_back(work_);
    }
    lists_.ahead = std::max(lists_.ahead, far_above_mean(work));
    std::stable_sort(items.begin(), items.end(), [&](const auto& a, const auto& b) {
      return work[static_cast<size_t>(a.tile)] > work[static_cast<size_t>(b.tile)];
    });
    lists_.items.insert(lists_.items.end(), items.begin(), items.end());
  }

  int record() const { return pieces_ + tiling_.groups; }

  /// The pieces that any block row of the tile holds, ascending.
  std::vector<Piece> pieces_of(int head, int tile) const {
    std::map<int, Piece> found;
    const int64_t first = int64_t{tile} * tiling_.rows();
    for (int group = 0; group < tiling_.groups; ++group)
      for (int part = 0; part * block_ < 64; ++part) {
        const int64_t query = first + 64 * group + part * block_;
        if (query >= layout_.height()) break;
        const int64_t line = int64_t{head} * layout_.rows() + query / block_;
        // Both halves of a block of 128 list the same: their warpgroups go in turns.
        const int64_t row = query / block_ * block_;
        const int64_t least = row + tiling_.first, most = row + block_ - 1 + tiling_.last;
        for (int n = view_.row_offsets[line]; n < view_.row_offsets[line + 1]; ++n)
          for (int key = view_.col_of[n] * block_; key < (view_.col_of[n] + 1) * block_;
               key += piece_) {
            if (key > most) break;
            if (key + piece_ - 1 < least) continue;
            Piece& p = found[key];
            p.key = key;
            p.rows[static_cast<size_t>(group)] |= 1U << part;
          }
      }
    std::vector<Piece> out;
    out.reserve(found.size());
    for (const auto& [key, p] : found) out.push_back(p);
    return out;
  }

  void add_tile(int head, int tile) {
    std::map<int, std::vector<Piece>> kept_by;
    for (const Piece& p : pieces_of(head, tile)) kept_by[p.groups()].push_back(p);
    std::vector<Piece> rest;
    const auto cut = [&](std::vector<Piece>& of) {  // what does not fill a tile is left for last
      std::stable_sort(of.begin(), of.end(),
                       [](const Piece& a, const Piece& b) { return a.rows < b.rows; });
      const size_t whole = of.size() / static_cast<size_t>(pieces_) * static_cast<size_t>(pieces_);
      rest.insert(rest.end(), of.begin() + static_cast<std::ptrdiff_t>(whole), of.end());
      of.resize(whole);
    };
    std::vector<std::vector<Piece>> apart;
    for (auto at = kept_by.rbegin(); at != kept_by.rend(); ++at) {
      cut(at->second);
      if (std::popcount(static_cast<unsigned>(at->first)) == 1) {
        apart.push_back(std::move(at->second));
      } else {
        add_records(at->second, 0, at->second.size());
      }
    }
    const auto step = static_cast<size_t>(pieces_);
    for (size_t from = 0;; from += step) {
      bool any = false;
      for (const std::vector<Piece>& of : apart) {
        if (from >= of.size()) continue;
        add_records(of, from, from + step);
        any = true;
      }
      if (!any) break;
    }
    add_records(rest, 0, rest.size());
  }

  void add_records(const std::vector<Piece>& of, size_t begin, size_t end) {
    for (size_t from = begin; from < end; from += static_cast<size_t>(pieces_)) {
      std::array<unsigned, most_groups> masks{};
      for (int p = 0; p < pieces_; ++p) {
        const size_t i = from + static_cast<size_t>(p);
        if (i >= end) {
          lists_.records.push_back(static_cast<int>(layout_.width()));
          continue;
        }
        lists_.records.push_back(of[i].key);
        for (size_t g = 0; g < masks.size(); ++g)
          for (int part = 0; part < 4; ++part)
            if (of[i].rows[g] >> part & 1) masks[g] |= 1U << (part * pieces_ + p);
      }
      for (int g = 0; g < tiling_.groups; ++g) {
        const unsigned mask = masks[static_cast<size_t>(g)];
        lists_.records.push_back(std::bit_cast<int>(mask));
        work_ += mask != 0;
      }
    }
  }

  const Layout& layout_;
  LayoutView view_;
  AttentionTiling tiling_;
  int block_, piece_, pieces_;
  AttentionTileLists lists_;
  int work_ = 0;  // products of the tile at hand
};

}  // namespace

AttentionTileLists attention_tile_lists(const Layout& layout, const AttentionTiling& tiling) {
  return TileMaker(layout, tiling).make();
}

}  // namespace bs::cuda
