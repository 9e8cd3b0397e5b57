#include <bs/kernels/cuda/attention/sparse_attention_warpgroup_case.h>
#include <bs/kernels/sparse_attention_check.h>
#include <bs/lib/cuda/runtime.h>

#include <cstdint>

namespace bs::cuda {

namespace {

/// Whether queries see by other bounds than the diagonal, or lengths end within blocks.
bool is_banded(const Tensor& q, const Tensor& k, const Layout& layout,
               const SparseAttentionOptions& options) {
  const bool cut = q.size(2) != layout.height() || k.size(2) != layout.width();
  return (cut && options.query_starts.empty()) || options.offset != 0 || options.window_before ||
         options.window_after;
}

/// Whether two neighbouring keys of a bias, if there is one, are a word.
bool has_pairs(const Tensor& bias) {
  if (!bias.defined()) return true;
  const bool even = (bias.strides()[0] | bias.strides()[1] | bias.strides()[2]) % 2 == 0;
  return even && bias.size(3) % 2 == 0 && reinterpret_cast<uintptr_t>(bias.data()) % 4 == 0;
}

/// Whether ragged sequences can be laid out as one.
bool can_be_one(const Tensor& q, const Tensor& v, const Layout& layout,
                const SparseAttentionOptions& options, unsigned rules) {
  return options.query_starts == options.key_starts && layout.on_host() &&
         (layout.heads() == 1 || layout.heads() == q.size(1)) && q.size(3) == v.size(3) &&
         (rules & device::rule_bits) == 0 && ragged_rows(options.query_starts) < INT32_MAX / 2;
}

const unsigned char* bytes_of(const Tensor& x) {
  return x.defined() ? static_cast<const unsigned char*>(x.data()) : nullptr;
}

}  // namespace

AttentionWarpgroups::AttentionWarpgroups(unsigned rules, const Tensor& q, const Tensor& k,
                                         const Tensor& v, const Layout& layout,
                                         const SparseAttentionOptions& options, Stream stream)
    : traits_{.banded = is_banded(q, k, layout, options),
              .rules = attention_warpgroup_rules(rules),
              .pinned = !options.query_starts.empty() || !layout.on_host()},
      padded_(options.key_padding_mask) {
  if (options.sinks.defined()) traits_.rules |= device::rule_sinks;
  const bool ragged = !options.query_starts.empty();
  const DeviceProperties& gpu = device_properties(q.device());
  runs_ = *options.first_query == 0 && has_pairs(options.bias) &&
          (!ragged || can_be_one(q, v, layout, options, traits_.rules)) &&
          warpgroup_forward({.dtype = q.dtype(),
                             .head_dim = static_cast<int>(q.size(3)),
                             .value_dim = static_cast<int>(v.size(3)),
                             .block = layout.block(),
                             .capability = gpu.capability,
                             .shared_bytes = gpu.shared_memory_optin,
                             .traits = traits_})
                  .dim > 0;
  if (!runs_) return;
  if (ragged) ragged_.emplace(ragged_layout(layout, options.query_starts, stream));
  cut_ = ragged && detail::attention_band(options).last > 0;
  mask_ = attention_mask(options, static_cast<int>(q.size(1)), layout.block(), layout.rows(),
                         layout.cols(), stream);
}

AttentionGrid AttentionWarpgroups::grid(const Tensor& q, const Tensor& k,
                                        const Layout& layout) const {
  if (ragged_) {
    const RaggedLayout& r = **ragged_;
    const auto side = static_cast<int>(r.layout->height());
    return {*r.layout,
            side,
            side,
            r.on_device(),
            cut_ ? bytes_of(r.seen) : nullptr,
            {},
            r.begins.data<int32_t>(),
            layout.height()};
  }
  const auto queries = static_cast<int>(q.size(2)), keys = static_cast<int>(k.size(2));
  return {layout,     queries, keys,           {nullptr, queries}, bytes_of(padded_),
          mask_.bits, nullptr, layout.height()};
}

}  // namespace bs::cuda
