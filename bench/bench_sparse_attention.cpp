// The rate of fused block-sparse attention, forward and backward, over patterns of the literature.
// Useful work only: 4 FLOP forward and 10 backward for each kept score and element of head_dim.
#include <bs/bench/block_sparse_cells.h>
#include <bs/bench/record.h>
#include <bs/bench/sparse_attention_check.h>
#include <bs/kernels/block_topk.h>
#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/kernels/random.h>
#include <bs/kernels/sparse_attention.h>
#include <bs/lib/packed_mask.h>
#include <bs/lib/patterns.h>
#include <bs/nn/multihead_attention.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace bs;

namespace {

struct Options {
  int batch = 8, heads = 4, sequence = 512, head_dim = 64;
  std::vector<int> blocks = {32};
  std::vector<std::string> patterns = {"fixed", "bigbird", "sliding", "causal", "dense"};
  int local = 128, global = 32;
  int keep = 8;
  double softcap = 0, dropout = 0;
  int alibi = 0, sinks = 0, ragged = 0, bias = 0, table = 0;
  std::string mask = "none";
};

constexpr const char* help =
    "bench_sparse_attention [options]\n"
    "  --batch B --heads H --sequence S --head-dim D     default 8, 4, 512, 64\n"
    "  --blocks 16,32,... --patterns fixed,bigbird,sliding,causal,dense,topk,window,random.8\n"
    "                          random and a density: so much of all blocks\n"
    "  --keep K                blocks that a row of topk keeps, default 8, each head its own; the\n"
    "                          layout of scores is timed too, and all of a step with a new one\n"
    "  --local N               tokens of a window, default 128; sliding has two behind; window\n"
    "                          hides all farther behind by tokens, and counts whole blocks\n"
    "  --global N              tokens that everything sees, default 32\n"
    "  --softcap C --alibi 0|1 --sinks 0|1               terms of scores, default none\n"
    "  --dropout P             of weights\n"
    "  --mask none|bytes|bits  of elements, the same for all heads; it hides a tenth\n"
    "  --bias 0|1 --table N    added to scores, the same for all heads; a table of 2 N + 1\n"
    "                          distances. A line more tells the backward with their gradients\n"
    "  --ragged 0|1            sequences in a row, each 13 tokens shorter; rates count them whole\n"
    "  --export FILE           writes layouts and problems for peers, and stops\n";

Options read_options(bench::Arguments& arguments) {
  Options o;
  arguments.read("--batch", o.batch);
  arguments.read("--heads", o.heads);
  arguments.read("--sequence", o.sequence);
  arguments.read("--head-dim", o.head_dim);
  arguments.read("--blocks", o.blocks);
  arguments.read("--patterns", o.patterns);
  arguments.read("--local", o.local);
  arguments.read("--global", o.global);
  arguments.read("--keep", o.keep);
  arguments.read("--softcap", o.softcap);
  arguments.read("--alibi", o.alibi);
  arguments.read("--sinks", o.sinks);
  arguments.read("--dropout", o.dropout);
  arguments.read("--mask", o.mask);
  arguments.read("--bias", o.bias);
  arguments.read("--table", o.table);
  arguments.read("--ragged", o.ragged);
  return o;
}

struct Pattern {
  LayoutPtr layout;
  bool causal;
  std::function<LayoutPtr()> make = {};  ///< for a pattern that follows scores
  std::optional<int64_t> before = {};    ///< tokens that a query sees behind it
};

/// What names a problem in records.
Json::Object cell_of(const Options& o, const std::string& name, const Layout& layout) {
  Json::Object cell = {{"pattern", name},
                       {"block", layout.block()},
                       {"density", std::round(1e4 * layout.density()) / 1e4},
                       {"batch", o.batch},
                       {"heads", o.heads},
                       {"sequence", o.sequence},
                       {"head_dim", o.head_dim}};
  if (o.softcap > 0) cell.emplace_back("softcap", o.softcap);
  if (o.alibi) cell.emplace_back("alibi", o.alibi);
  if (o.sinks) cell.emplace_back("sinks", o.sinks);
  if (o.dropout > 0) cell.emplace_back("dropout", o.dropout);
  if (o.mask != "none") cell.emplace_back("mask", o.mask);
  if (o.bias) cell.emplace_back("bias", o.bias);
  if (o.table) cell.emplace_back("table", o.table);
  if (o.ragged) cell.emplace_back("ragged", o.ragged);
  return cell;
}

void add_mask(SparseAttentionOptions& attention, const Options& o, const LayoutPtr& layout,
              Device device) {
  if (o.mask == "none") return;
  BS_CHECK(o.mask == "bytes" || o.mask == "bits", "bench: unknown mask {}; see --help", o.mask);
  const auto sees = [](int64_t, int64_t i, int64_t j) { return bench::mask_sees(i, j); };
  if (o.mask == "bits") {
    attention.packed_mask = pack_mask(layout, o.sequence, o.sequence, sees, device);
    return;
  }
  Tensor mask = Tensor::empty({1, 1, o.sequence, o.sequence}, boolean);
  auto* at = static_cast<unsigned char*>(mask.data());
  for (int64_t i = 0; i < o.sequence; ++i)
    for (int64_t j = 0; j < o.sequence; ++j) *at++ = bench::mask_sees(i, j);
  attention.mask = mask.to(device);
}

void add_biases(SparseAttentionOptions& attention, const Options& o,
                const bench::Settings& settings) {
  if (o.bias) {
    Tensor bias = Tensor::empty({1, 1, o.sequence, o.sequence}, f32);
    auto* at = bias.data<float>();
    for (int64_t i = 0; i < o.sequence; ++i)
      for (int64_t j = 0; j < o.sequence; ++j) *at++ = static_cast<float>(bench::bias_at(i, j));
    attention.bias = cast(bias, settings.dtype).to(settings.device);
  }
  if (o.table) {
    Tensor table = Tensor::empty({1, int64_t{2} * o.table + 1}, f32);
    auto* at = table.data<float>();
    for (int64_t d = -o.table; d <= o.table; ++d) *at++ = static_cast<float>(bench::table_at(d));
    attention.relative_bias = table.to(settings.device);
  }
}

SparseAttentionOptions attention_of(const Options& o, const Pattern& pattern,
                                    const bench::Settings& settings) {
  const Device device = settings.device;
  SparseAttentionOptions attention{.causal = pattern.causal, .window_before = pattern.before};
  attention.softcap = o.softcap;
  attention.dropout = o.dropout;
  attention.random = {bench::random_seed, bench::random_sequence};
  add_mask(attention, o, pattern.layout, device);
  add_biases(attention, o, settings);
  if (o.alibi) attention.alibi_slopes = nn::alibi_slopes(o.heads).to(device);
  if (o.sinks) attention.sinks = full({o.heads}, bench::sink, f32, device);
  if (o.ragged) {
    attention.query_starts = {0};
    for (int64_t i = 0; i < o.batch; ++i)
      attention.query_starts.push_back(attention.query_starts.back() + o.sequence - 13 * i);
    attention.key_starts = attention.query_starts;
  }
  return attention;
}

/// Each entry and head of its own scores.
Pattern make_topk(const Options& o, int block, Device device) {
  const int64_t blocks = o.sequence / block;
  const Tensor scores = randn({o.batch, o.heads, blocks, blocks}, f32, device);
  const BlockTopkOptions causal{
      .block = block, .causal = true, .first_blocks = 1, .local_blocks = 2};
  const auto make = [scores, causal, keep = o.keep] { return block_topk(scores, keep, causal); };
  return {make(), true, make};
}

Pattern make_pattern(const Options& o, const std::string& name, int block, Device device) {
  if (name == "topk") return make_topk(o, block, device);
  const patterns::Size size{.rows = (o.sequence + block - 1) / block, .block = block};
  const int local = std::max(1, o.local / block);
  const int global = std::max(1, o.global / block);
  if (name == "fixed") {
    const patterns::FixedOptions fixed{
        .local_blocks = local, .global_blocks = global, .causal = true};
    return {patterns::fixed(size, fixed), true};
  }
  if (name == "bigbird") {
    const patterns::BigBirdOptions bigbird{.random_blocks = size.rows / 16,
                                           .window_blocks = std::min(2 * local + 1, size.rows),
                                           .global_blocks = global};
    return {patterns::bigbird(size, bigbird), false};
  }
  if (name == "sliding")
    return {patterns::sliding_window(size, {.window_blocks = std::min(4 * local + 1, size.rows)}),
            true};
  if (name == "window") {
    const int behind = (o.local + block - 1) / block;
    return {patterns::sliding_window(size, {.window_blocks = std::min(2 * behind + 1, size.rows)}),
            true,
            {},
            o.local};
  }
  if (name.starts_with("random")) {
    double density = 0;
    const std::string digits = name.substr(std::string("random").size());
    const auto end = digits.data() + digits.size();
    BS_CHECK(std::from_chars(digits.data(), end, density).ptr == end && density > 0 && density <= 1,
             "bench: {} has no density between 0 and 1, such as random.8", name);
    return {patterns::random(size, {.density = density}), false};
  }
  BS_CHECK(name == "causal" || name == "dense", "bench: unknown pattern {}; see --help", name);
  return {patterns::dense(size, {.causal = name == "causal"}), name == "causal"};
}

class Bench {
 public:
  Bench(const Options& options, const bench::Settings& settings)
      : options_(options), settings_(settings), record_("sparse_attention", settings) {}

  void run(const std::string& name, int block) {
    const Options& o = options_;
    const Pattern pattern = make_pattern(o, name, block, settings_.device);
    const SparseAttentionOptions attention = attention_of(o, pattern, settings_);
    const auto random = [&](int64_t width) {
      const Shape shape = o.ragged ? Shape{1, attention.query_starts.back(), width}
                                   : Shape{o.batch, o.sequence, width};
      return randn(shape, settings_.dtype, settings_.device);
    };
    const Tensor qkv = random(int64_t{3} * o.heads * o.head_dim);
    const Tensor dout = random(int64_t{o.heads} * o.head_dim);
    const auto forward = sparse_attention_qkv(qkv, o.heads, pattern.layout, attention);
    const Tensor gradient =
        sparse_attention_qkv_backward(qkv, o.heads, forward, dout, pattern.layout, attention);
    // A layout that the host has looked at would run other kernels.
    check(name, pattern.make ? Pattern{pattern.make(), true} : pattern, qkv, dout, forward,
          gradient);
    const size_t rows = forward.lse.bytes();
    if (pattern.make) {
      add(name, *pattern.layout, "layout", 0, 0, [&] { pattern.make(); });
      add(name, *pattern.layout, "all anew", 7, 3 * (qkv.bytes() + dout.bytes()) + 2 * rows, [&] {
        const LayoutPtr layout = pattern.make();
        const auto result = sparse_attention_qkv(qkv, o.heads, layout, attention);
        sparse_attention_qkv_backward(qkv, o.heads, result, dout, layout, attention);
      });
    }
    add(name, *pattern.layout, "forward", 2, qkv.bytes() + dout.bytes() + rows,
        [&] { sparse_attention_qkv(qkv, o.heads, pattern.layout, attention); });
    add(name, *pattern.layout, "backward", 5, 2 * (qkv.bytes() + dout.bytes()) + rows, [&] {
      sparse_attention_qkv_backward(qkv, o.heads, forward, dout, pattern.layout, attention);
    });
    if (o.bias || o.table) add_wanted(name, pattern, attention, qkv, dout, forward);
  }

  void write() const { record_.write(); }

 private:
  /// The part of one of q, k, v or of out that is `which` times as wide, head by head.
  Tensor heads_of(const Tensor& x, int which) const {
    const Options& o = options_;
    const int64_t width = int64_t{o.heads} * o.head_dim;
    return x.slice(2, which * width, (which + 1) * width)
        .view({x.size(0), x.size(1), o.heads, o.head_dim})
        .permute({0, 2, 1, 3});
  }

  /// The backward with gradients of a bias and a table.
  void add_wanted(const std::string& name, const Pattern& pattern,
                  const SparseAttentionOptions& attention, const Tensor& qkv, const Tensor& dout,
                  const SparseAttentionResult& joined) {
    const SparseAttentionResult forward{heads_of(joined.out, 0), joined.lse};
    const SparseAttentionWanted wanted{.bias = attention.bias.defined(),
                                       .relative_bias = attention.relative_bias.defined()};
    const size_t bytes = 2 * (qkv.bytes() + dout.bytes()) + joined.lse.bytes();
    add(name, *pattern.layout, "backward of all", 5, bytes, [&] {
      sparse_attention_backward(heads_of(qkv, 0), heads_of(qkv, 1), heads_of(qkv, 2), forward,
                                heads_of(dout, 0), pattern.layout, attention, wanted);
    });
  }

  void check(const std::string& name, const Pattern& pattern, const Tensor& qkv, const Tensor& dout,
             const SparseAttentionResult& forward, const Tensor& gradient) const {
    const Options& o = options_;
    // The last entry of a batch, or the first of ragged sequences.
    const int64_t entry = o.ragged ? 0 : o.batch - 1;
    const auto part = [&](const Tensor& x, int which) {
      const Tensor rows = x.slice(0, entry, entry + 1).slice(1, 0, o.sequence);
      return bench::host(heads_of(rows, which), 0, o.heads - 1);
    };
    const double slope = o.alibi ? Tensor(nn::alibi_slopes(o.heads)).data<float>()[o.heads - 1] : 0;
    const bench::AttentionHead head{
        part(qkv, 0),
        part(qkv, 1),
        part(qkv, 2),
        part(dout, 0),
        part(forward.out, 0),
        bench::host(forward.lse.slice(2, 0, o.sequence), static_cast<int>(entry), o.heads - 1),
        part(gradient, 0),
        part(gradient, 1),
        part(gradient, 2),
        *pattern.layout,
        pattern.causal,
        pattern.before,
        static_cast<size_t>(o.head_dim),
        static_cast<size_t>(o.sequence),
        o.softcap,
        slope,
        o.sinks != 0,
        o.mask != "none",
        o.bias != 0,
        o.table,
        o.dropout,
        static_cast<size_t>((entry * o.heads + o.heads - 1) * forward.lse.size(2))};
    for (size_t sample = 0; sample < 40; ++sample)
      head.check(name, sample * 7919 % head.length, sample * 31 % head.n,
                 bench::rounding(settings_.dtype));
  }

  void add(const std::string& name, const Layout& layout, const char* pass, double products,
           size_t bytes, const bench::Work& work) {
    const Options& o = options_;
    const double heads = static_cast<double>(o.batch) * o.heads / layout.heads();
    record_.add({.cell = cell_of(o, name, layout),
                 .what = pass,
                 .time = bench::measure(settings_.device, work, settings_.measure),
                 .flops = products * heads * layout.flops(o.head_dim),
                 .bytes = static_cast<double>(bytes)});
  }

  const Options& options_;
  const bench::Settings& settings_;
  bench::Record record_;
};

Json export_problems(const Options& options) {
  Json::Array layouts, problems;
  for (const std::string& name : options.patterns)
    for (int block : options.blocks) {
      BS_CHECK(name != "topk", "bench: peers read one layout for all heads, which topk has not");
      BS_CHECK(name != "window", "bench: peers know no windows of tokens");
      const Pattern pattern = make_pattern(options, name, block, Device::cpu());
      problems.emplace_back(Json::Object{{"layout", static_cast<int64_t>(layouts.size())},
                                         {"cell", cell_of(options, name, *pattern.layout)},
                                         {"causal", pattern.causal}});
      layouts.push_back(bench::export_layout(name, *pattern.layout));
    }
  return Json::Object{{"layouts", std::move(layouts)}, {"problems", std::move(problems)}};
}

}  // namespace

int main(int argc, char** argv) try {
  bench::Arguments arguments(argc, argv, help);
  const bench::Settings settings(arguments);
  const Options options = read_options(arguments);
  std::string exported;
  arguments.read("--export", exported);
  arguments.finish();
  if (!exported.empty()) {
    bench::write_text(exported, export_problems(options).dump() + "\n");
    return 0;
  }
  Bench bench(options, settings);
  for (const std::string& pattern : options.patterns)
    for (int block : options.blocks) bench.run(pattern, block);
  bench.write();
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
