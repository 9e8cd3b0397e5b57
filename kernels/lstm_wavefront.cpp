#include <bs/kernels/lstm_wavefront.h>

#include <bs/lib/integers.h>

#include <algorithm>

namespace bs::detail {

namespace {

std::vector<std::vector<LSTMPiece>> turns_of(int64_t steps, int64_t chunk, size_t layers) {
  const int64_t count = ceil_div(steps, chunk);
  std::vector<std::vector<LSTMPiece>> turns;
  for (int64_t d = 0; d < count + static_cast<int64_t>(layers) - 1; ++d) {
    std::vector<LSTMPiece> whole, rest;
    for (size_t l = 0; l < layers; ++l) {
      const int64_t k = d - static_cast<int64_t>(l);
      if (k < 0 || k >= count) continue;
      const LSTMPiece piece{l, k * chunk, std::min(steps, (k + 1) * chunk)};
      (piece.to - piece.from == chunk ? whole : rest).push_back(piece);
    }
    for (std::vector<LSTMPiece>* each : {&whole, &rest})
      if (!each->empty()) turns.push_back(std::move(*each));
  }
  return turns;
}

/// Whether a device that runs one runs the other the same way: pieces of others share no launch.
bool alike(const LSTMDirection& a, const LSTMDirection& b) {
  return a.rule.zoneout() == b.rule.zoneout() && a.rule.hard == b.rule.hard &&
         (a.weights.layout == nullptr) == (b.weights.layout == nullptr) &&
         a.weights.hr.defined() == b.weights.hr.defined();
}

}  // namespace

std::vector<std::vector<LSTMPiece>> wavefront(std::span<const LSTMDirection> layers,
                                              const LSTMSteps& first, bool backward,
                                              int64_t chunk) {
  BS_CHECK(chunk >= 0, "lstm_layers: pieces of {} steps", chunk);
  const bool draws = std::ranges::any_of(
      layers, [](const LSTMDirection& d) { return d.rule.zoneout() && !d.rule.expected; });
  const bool drops = std::ranges::any_of(layers, [](const auto& d) { return d.dropout > 0; });
  const bool mixed =
      std::ranges::any_of(layers, [&](const auto& d) { return !alike(layers.front(), d); });
  if (chunk == 0 && mixed) chunk = first.steps();
  if (chunk == 0) BS_DISPATCH(first.gates.device(), lstm_chunk, first, backward, chunk);
  if (draws || chunk > first.steps()) chunk = first.steps();
  if (drops) chunk = round_up(chunk, 4);
  return turns_of(first.steps(), chunk, layers.size());
}

}  // namespace bs::detail
