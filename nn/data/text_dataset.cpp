#include <bs/nn/data/text_dataset.h>

#include <bs/lib/check.h>
#include <bs/lib/file.h>
#include <bs/lib/out_of_memory.h>

#include <new>

namespace bs::data {

TextDataset TextDataset::read(const std::string& path) try {
  InputFile file(path);
  std::vector<uint8_t> bytes(static_cast<size_t>(file.size()));
  file.read(bytes.data(), bytes.size());
  TextDataset text;
  text.end_ = file.size();
  text.storage_ = std::make_shared<const std::vector<uint8_t>>(std::move(bytes));
  return text;
} catch (const std::bad_alloc&) {
  out_of_own_memory("text", path);
}

TextDataset TextDataset::from(std::string_view content) {
  TextDataset text;
  text.end_ = static_cast<int64_t>(content.size());
  text.storage_ = std::make_shared<const std::vector<uint8_t>>(content.begin(), content.end());
  return text;
}

std::span<const uint8_t> TextDataset::bytes() const {
  if (!storage_) return {};
  return std::span(*storage_).subspan(static_cast<size_t>(begin_), static_cast<size_t>(size()));
}

TextDataset TextDataset::slice(int64_t begin, int64_t end) const {
  BS_CHECK(0 <= begin && begin <= end && end <= size(), "text: bytes [{}, {}) of {}", begin, end,
           size());
  TextDataset part = *this;
  part.begin_ = begin_ + begin;
  part.end_ = begin_ + end;
  return part;
}

TextDataset::Split TextDataset::split(double held_out) const {
  BS_CHECK(held_out >= 0 && held_out <= 1, "text: a held-out share of {}", held_out);
  const int64_t cut = size() - static_cast<int64_t>(held_out * static_cast<double>(size()));
  return {slice(0, cut), slice(cut, size())};
}

}  // namespace bs::data
