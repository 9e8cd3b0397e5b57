#include <bs/lib/check.h>
#include <bs/nn/data/text_dataset.h>
#include <bs/tests/support/scratch.h>
#include <doctest/doctest.h>

#include <string>

using namespace bs;
using data::TextDataset;

namespace {
std::string text_of(const TextDataset& text) { return {text.bytes().begin(), text.bytes().end()}; }
}  // namespace

TEST_CASE("text: slices and splits share the bytes") {
  const TextDataset text = TextDataset::from("0123456789");
  CHECK(text.size() == 10);
  const TextDataset part = text.slice(2, 7).slice(1, 4);
  CHECK(text_of(part) == "345");
  CHECK(part.bytes().data() == text.bytes().data() + 3);
  CHECK(text_of(text.split(0.25).train) == "01234567");
  CHECK(text_of(text.split(0.25).held_out) == "89");
  CHECK(text.split(0).held_out.size() == 0);
  CHECK(text.split(1).train.size() == 0);
  CHECK(TextDataset().size() == 0);
  CHECK(TextDataset().bytes().empty());
  CHECK_THROWS_WITH_AS(text.slice(3, 11), "text: bytes [3, 11) of 10", Error);
  CHECK_THROWS_WITH_AS(text.split(1.5), "text: a held-out share of 1.5", Error);
}

TEST_CASE("text: reads every byte of a file") {
  const test::Scratch folder;
  std::string all;
  for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
  test::write_file(folder / "text", all);
  CHECK(text_of(TextDataset::read(folder / "text")) == all);
  CHECK_THROWS_AS(TextDataset::read(folder / "missing"), IoError);
}
