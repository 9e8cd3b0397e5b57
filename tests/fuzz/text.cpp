#include <bs/lib/device.h>
#include <bs/lib/json.h>
#include <bs/nn/data/alphabet.h>
#include <bs/nn/data/text_dataset.h>
#include <bs/tests/fuzz/harness.h>

#include <algorithm>

using namespace bs;

BS_HARNESS(text) {
  const auto text = data::TextDataset::read(fuzz::file_of("input", bytes));
  const auto read = text.bytes();
  fuzz::require(std::equal(read.begin(), read.end(), bytes.begin(), bytes.end(),
                           [](uint8_t a, char b) { return a == static_cast<uint8_t>(b); }),
                "a text is what the file holds");
  std::string_view numbers = bytes;
  const auto share = fuzz::take<double>(numbers);
  const auto begin = fuzz::take<int64_t>(numbers), end = fuzz::take<int64_t>(numbers);
  fuzz::takes([&] { fuzz::require(text.slice(begin, end).size() == end - begin, "a slice"); });
  fuzz::takes([&] {
    const auto parts = text.split(share);
    fuzz::require(parts.train.size() + parts.held_out.size() == text.size(), "parts of a text");
  });
  fuzz::takes([&] { to_string(parse_dtype(bytes)); });
  fuzz::takes([&] { to_string(Device::parse(bytes)); });

  const std::string whole(bytes);
  data::Alphabet alphabet("");
  const bool has_one = fuzz::takes([&] { alphabet = data::Alphabet::of(std::span(&whole, 1)); });
  fuzz::require(has_one == is_utf8(bytes), "every text of UTF-8 has an alphabet, and no other");
  if (!has_one) return;
  fuzz::require(alphabet.decode(alphabet.encode(bytes)) == bytes, "a text is its numbers");
  fuzz::require(data::Alphabet(alphabet.text()).text() == alphabet.text(), "so is an alphabet");
  fuzz::takes([&] { fuzz::require(data::Alphabet(bytes).contains(bytes), "its own characters"); });
}
