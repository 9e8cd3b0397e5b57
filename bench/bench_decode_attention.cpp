// The rate of attention of few queries to many keys, as a model with a cache asks for it at each
// token. Its floor is the time in which a copy moves the keys and values once.
#include <bs/bench/record.h>
#include <bs/bench/sparse_attention_check.h>
#include <bs/kernels/index_select.h>
#include <bs/kernels/paged_attention.h>
#include <bs/kernels/random.h>
#include <bs/lib/patterns.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <random>
#include <vector>

using namespace bs;

namespace {

struct Options {
  int batch = 8, heads = 32, kv_heads = 8, head_dim = 128, queries = 1, block = 128, page = 64;
  std::vector<int> keys = {8192, 16384, 32768, 65536};
};

constexpr const char* help =
    "bench_decode_attention [options]\n"
    "  --batch B --heads H --kv-heads N --head-dim D     default 8, 32, 8, 128\n"
    "  --queries N             the last tokens, causal; default 1\n"
    "  --keys 8192,16384,...   tokens, those of the queries included\n"
    "  --block N               of the layout, which has all blocks; default 128\n"
    "  --page N                tokens of a page, of which they lie in any order; default 64\n";

Options read_options(bench::Arguments& arguments) {
  Options o;
  arguments.read("--batch", o.batch);
  arguments.read("--heads", o.heads);
  arguments.read("--kv-heads", o.kv_heads);
  arguments.read("--head-dim", o.head_dim);
  arguments.read("--queries", o.queries);
  arguments.read("--keys", o.keys);
  arguments.read("--block", o.block);
  arguments.read("--page", o.page);
  return o;
}

/// Tokens in their order, and the same in pages.
struct Memory {
  Tensor keys, values;
  PagedKeys pages;
};

Memory make_memory(const Options& o, int length, const bench::Settings& settings) {
  const int64_t count = (length + o.page - 1) / o.page;
  std::vector<int64_t> table(static_cast<size_t>(count));
  std::iota(table.begin(), table.end(), 0);
  std::shuffle(table.begin(), table.end(), std::mt19937(7));
  Tensor order = Tensor::empty({count}, i64);
  std::copy(table.begin(), table.end(), order.data<int64_t>());
  const Tensor index = order.to(settings.device);
  const auto random = [&] {
    return randn({o.batch, o.kv_heads, count, o.page, o.head_dim}, settings.dtype, settings.device);
  };
  const auto in_order = [&](const Tensor& pages) {
    return index_select(pages, 2, index).flatten(2, 3).slice(2, 0, length);
  };
  const PagedKeys pages{random(), random(), table, length};
  return {in_order(pages.keys), in_order(pages.values), pages};
}

/// Compares the last query of the last head with sums in double.
void check(const Options& o, const Tensor& q, const Memory& memory, const Tensor& out,
           DType dtype) {
  const int last = o.batch - 1, n = o.head_dim;
  const auto row = static_cast<size_t>((o.queries - 1) * n);
  const std::vector<double> query = bench::host(q, last, o.heads - 1);
  const std::vector<double> keys = bench::host(memory.keys, last, o.kv_heads - 1);
  const std::vector<double> values = bench::host(memory.values, last, o.kv_heads - 1);
  const std::vector<double> actual = bench::host(out, last, o.heads - 1);
  std::vector<double> expected(static_cast<size_t>(n));
  double total = 0;
  for (size_t j = 0; j < keys.size(); j += expected.size()) {
    double score = 0;
    for (size_t d = 0; d < expected.size(); ++d) score += query[row + d] * keys[j + d];
    const double weight = std::exp(score / std::sqrt(static_cast<double>(n)));
    total += weight;
    for (size_t d = 0; d < expected.size(); ++d) expected[d] += weight * values[j + d];
  }
  for (size_t d = 0; d < expected.size(); ++d)
    BS_CHECK(std::abs(actual[row + d] - expected[d] / total) <= 4 * bench::rounding(dtype),
             "bench: element {} is wrong: {}, not {}", static_cast<int64_t>(d), actual[row + d],
             expected[d] / total);
}

void run(const Options& o, int length, const bench::Settings& settings, bench::Record& record) {
  BS_CHECK(o.queries > 0 && o.queries <= length, "bench: {} queries of {} tokens", o.queries,
           length);
  const Memory memory = make_memory(o, length, settings);
  const Tensor q =
      randn({o.batch, o.heads, o.queries, o.head_dim}, settings.dtype, settings.device);
  const int blocks = (length + o.block - 1) / o.block;
  const LayoutPtr layout = patterns::dense({.rows = blocks, .block = o.block});
  const SparseAttentionOptions options{.causal = true, .first_query = length - o.queries};
  const auto in_order = [&] {
    return sparse_attention(q, memory.keys, memory.values, layout, options).out;
  };
  const auto in_pages = [&] { return paged_attention(q, memory.pages, layout, options).out; };
  check(o, q, memory, in_order(), settings.dtype);
  check(o, q, memory, in_pages(), settings.dtype);
  const std::vector<bench::Timing> times = bench::interleave(
      settings.device, {[&] { in_order(); }, [&] { in_pages(); }}, settings.measure);
  const double scores = static_cast<double>(o.batch) * o.heads * o.queries * length;
  for (size_t paged = 0; paged < 2; ++paged)
    record.add({.cell = {{"batch", o.batch},
                         {"heads", o.heads},
                         {"kv_heads", o.kv_heads},
                         {"head_dim", o.head_dim},
                         {"queries", o.queries},
                         {"keys", length},
                         {"block", o.block}},
                .what = paged == 0 ? "in order" : format("in pages of {}", o.page),
                .time = times[paged],
                .flops = 4 * scores * o.head_dim,
                .bytes = static_cast<double>(memory.keys.numel() + memory.values.numel()) *
                             static_cast<double>(size_of(settings.dtype)) +
                         2 * static_cast<double>(q.bytes())});
}

}  // namespace

int main(int argc, char** argv) try {
  bench::Arguments arguments(argc, argv, help);
  const bench::Settings settings(arguments);
  const Options options = read_options(arguments);
  arguments.finish();
  bench::Record record("decode_attention", settings);
  for (const int length : options.keys) run(options, length, settings, record);
  record.write();
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
