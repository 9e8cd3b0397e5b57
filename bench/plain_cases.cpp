#include <bs/bench/plain_case_list.h>
#include <bs/bench/plain_cases.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/matmul.h>

#include <algorithm>

namespace bs::bench {

namespace {

void add_copies(Cases& c) {
  const double both = 2 * c.whole();
  const Tensor x = c.matrix();
  const auto copied = [&](const char* layout, const Tensor& view, double moved) {
    c.add("copy", layout, moved, [view] { return clone(view); });
  };
  copied("contiguous", x, both);
  copied("transposed", x.transpose(0, 1), both);
  if (c.has_heads()) {
    const Tensor heads = c.heads(x);
    copied("bshd to bhsd", heads.permute({0, 2, 1, 3}), both);
    copied("bshd to bhds", heads.permute({0, 2, 3, 1}), both);
    copied("bshd to sbhd", heads.permute({1, 0, 2, 3}), both);
    copied("bshd to dhsb", heads.permute({3, 2, 1, 0}), both);
  }
  const Tensor wide = c.values({c.rows, 2 * c.columns});
  copied("left half", wide.slice(1, 0, c.columns), both);
  copied("every second", wide.slice(1, 0, 2 * c.columns, 2), 1.5 * both);
  copied("shifted by one", wide.slice(1, 1, c.columns + 1), both);
  const DType other = c.dtype() == f32 ? bf16 : f32;
  const double moved = c.whole() * (1 + static_cast<double>(size_of(other)) /
                                            static_cast<double>(size_of(c.dtype())));
  c.add("cast", "contiguous", moved, [x, other] { return cast(x, other); });
  c.add("cast", "transposed", moved, [v = x.transpose(0, 1), other] { return cast(v, other); });
}

/// A product with a matrix of as many columns, up to 4096.
void add_products(Cases& c) {
  const int64_t width = std::min<int64_t>(c.columns, 4096);
  const Tensor x = c.matrix(), w = c.values({c.columns, width}),
               turned = c.values({width, c.columns});
  const double moved = c.whole() + c.bytes(w.numel() + c.rows * width);
  const double flops = 2.0 * static_cast<double>(c.rows) * static_cast<double>(w.numel());
  c.add(
      "matmul", "contiguous", moved, [=] { return matmul(x, w); }, flops);
  c.add(
      "matmul", "transposed", moved, [=] { return matmul(x, turned.transpose(0, 1)); }, flops);
}

struct Set {
  const char* name;
  void (*add)(Cases&);
};
constexpr Set all_sets[] = {
    {"copy", add_copies},           {"binary", add_binaries},   {"compare", add_comparisons},
    {"unary", add_unaries},         {"reduce", add_reductions}, {"rows", add_rows},
    {"products", add_products},     {"losses", add_losses},     {"pointwise", add_pointwise},
    {"select", add_selections},     {"fill", add_fills},        {"blocks", add_blocks},
    {"optimisers", add_optimisers}, {"images", add_images}};

/// What the set "sizes" takes of each set: one case or a few for each kind of kernel.
const struct {
  void (*add)(Cases&);
  std::vector<std::string> names;
} representatives[] = {
    {add_copies,
     {"copy: contiguous", "copy: transposed", "copy: bshd to bhsd", "cast: contiguous"}},
    {add_binaries, {"add: contiguous", "add: row", "add: column", "add: middle axis"}},
    {add_unaries, {"gelu: contiguous", "gelu_backward: contiguous", "dropout: contiguous"}},
    {add_reductions,
     {"sum: all", "sum: first axis", "sum: last axis", "amax: last axis", "argmax: last axis"}},
    {add_rows,
     {"softmax: last axis", "softmax_backward: last axis", "layer_norm: last axis",
      "layer_norm_backward: last axis"}},
    {add_selections, {"index_select: first axis", "concat: last axis", "cumsum: last axis"}}};

std::vector<PlainCase> representative_cases(const PlainSize& size, DType dtype, Device device) {
  std::vector<PlainCase> chosen;
  for (const auto& [add, names] : representatives) {
    Cases cases(size, dtype, device);
    add(cases);
    for (PlainCase& c : cases.list)
      if (std::ranges::find(names, c.what + ": " + c.layout) != names.end())
        chosen.push_back(std::move(c));
  }
  return chosen;
}

}  // namespace

const std::vector<std::string>& plain_sets() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Set& set : all_sets) all.emplace_back(set.name);
    return all;
  }();
  return names;
}

std::vector<PlainCase> plain_cases(const std::string& set, const PlainSize& size, DType dtype,
                                   Device device) {
  if (set == "sizes") return representative_cases(size, dtype, device);
  for (const Set& s : all_sets) {
    if (set != s.name) continue;
    Cases cases(size, dtype, device);
    s.add(cases);
    return cases.list;
  }
  BS_THROW(Error, "bench: there is no set '{}'", set);
}

}  // namespace bs::bench
