#include <bs/examples/image_classifier/layout_pruning.h>
#include <bs/kernels/binary.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/reduce.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace bs::example {
namespace {

constexpr const char* prefix = "layout ";

size_t places_of(const Layout& layout) {
  return static_cast<size_t>(layout.rows()) * static_cast<size_t>(layout.cols());
}

/// A layout of the same size, with blocks at these places.
LayoutPtr layout_at(const Layout& like, const std::vector<size_t>& places) {
  std::vector<BlockIndex> blocks;
  blocks.reserve(places.size());
  const auto columns = static_cast<size_t>(like.cols());
  for (const size_t place : places)
    blocks.push_back(
        {0, static_cast<int32_t>(place / columns), static_cast<int32_t>(place % columns)});
  return Layout::from_blocks(1, like.rows(), like.cols(), like.block(), std::move(blocks));
}

/// Where a layout has blocks, in their order.
std::vector<size_t> taken_places(const Layout& layout) {
  const LayoutView v = layout.view(Device::cpu());
  std::vector<size_t> places;
  places.reserve(static_cast<size_t>(v.nnz));
  for (int32_t i = 0; i < v.nnz; ++i)
    places.push_back(static_cast<size_t>(v.row_of[i]) * static_cast<size_t>(v.cols) +
                     static_cast<size_t>(v.col_of[i]));
  return places;
}

/// Places of the blocks, the largest norm first.
std::vector<size_t> by_norm(const nn::BlockSparseConv2d& conv) {
  const Tensor values = cast(conv.weight.data(), f32);
  const Tensor norms = to(contiguous(sum(mul(values, values), Dims{1, 2})), Device::cpu());
  std::vector<double> size;
  for (int64_t i = 0; i < norms.numel(); ++i) size.push_back(norms.select(0, i).item());
  std::vector<size_t> order(size.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return size[a] > size[b]; });
  const std::vector<size_t> places = taken_places(*conv.layout());
  for (size_t& i : order) i = places[i];
  return order;
}

optim::LayoutChange change(nn::BlockSparseConv2d& conv, const std::vector<size_t>& places) {
  const LayoutPtr before = conv.layout();
  conv.update_layout(layout_at(*before, places));
  return {before, conv.layout()};
}

}  // namespace

LayoutPruning::LayoutPruning(const ResNet& model) {
  for (size_t i = 0; i < model.blocks.size(); ++i) {
    const BasicBlock& block = *model.blocks[i];
    if (!block.conv1.sparse) continue;
    weights_.push_back({model.block_names[i] + ".conv1.weight", block.conv1.sparse.get()});
    weights_.push_back({model.block_names[i] + ".conv2.weight", block.conv2.sparse.get()});
  }
}

LayoutPruning::Changes LayoutPruning::prune(double density) {
  Changes changes;
  for (const Weight& w : weights_) {
    std::vector<size_t> places = by_norm(*w.conv);
    const auto all = static_cast<double>(places_of(*w.conv->layout()));
    const auto count = static_cast<size_t>(std::ceil(density * all));
    places.resize(std::min(places.size(), std::max<size_t>(count, 1)));
    changes[w.name] = change(*w.conv, places);
  }
  return changes;
}

LayoutPruning::Changes LayoutPruning::regrow(double share, uint64_t seed) {
  Changes changes;
  std::mt19937_64 random(seed);
  for (const Weight& w : weights_) {
    std::vector<size_t> places = by_norm(*w.conv);
    std::vector<bool> taken(places_of(*w.conv->layout()));
    for (const size_t place : places) taken[place] = true;
    std::vector<size_t> free;
    for (size_t place = 0; place < taken.size(); ++place)
      if (!taken[place]) free.push_back(place);
    std::shuffle(free.begin(), free.end(), random);
    const auto wanted = static_cast<size_t>(share * static_cast<double>(places.size()));
    const size_t count = std::min(wanted, free.size());
    if (count == 0) continue;
    places.resize(places.size() - count);
    places.insert(places.end(), free.begin(), free.begin() + static_cast<ptrdiff_t>(count));
    changes[w.name] = change(*w.conv, places);
  }
  return changes;
}

double LayoutPruning::density() const {
  double blocks = 0, places = 0;
  for (const Weight& w : weights_) {
    blocks += static_cast<double>(w.conv->layout()->nnz());
    places += static_cast<double>(places_of(*w.conv->layout()));
  }
  return places > 0 ? blocks / places : 1;
}

std::map<std::string, std::string> LayoutPruning::texts() const {
  std::map<std::string, std::string> texts;
  for (const Weight& w : weights_) {
    const Layout& layout = *w.conv->layout();
    std::string text(places_of(layout), '.');
    for (const size_t place : taken_places(layout)) text[place] = '#';
    texts[prefix + w.name] = text;
  }
  return texts;
}

void LayoutPruning::restore(const std::map<std::string, std::string>& texts) {
  for (const Weight& w : weights_) {
    const Layout& layout = *w.conv->layout();
    const auto found = texts.find(prefix + w.name);
    BS_CHECK(found != texts.end() && found->second.size() == places_of(layout),
             "the checkpoint has no layout of {} with {} x {} blocks", w.name, layout.rows(),
             layout.cols());
    std::vector<size_t> places;
    for (size_t i = 0; i < found->second.size(); ++i)
      if (found->second[i] == '#') places.push_back(i);
    change(*w.conv, places);
  }
}

}  // namespace bs::example
