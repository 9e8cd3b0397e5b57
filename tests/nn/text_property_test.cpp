// Texts of any bytes, as names, keys and values of what is saved: a save that does not refuse one
// can be read, and gives it back.
#include <bs/kernels/fill.h>
#include <bs/lib/json.h>
#include <bs/lib/npz.h>
#include <bs/lib/safetensors.h>
#include <bs/nn/checkpoint.h>
#include <bs/nn/data/alphabet.h>
#include <bs/tests/support/scratch.h>
#include <doctest/doctest.h>

#include <random>

using namespace bs;
using namespace bs::test;

namespace {

/// UTF-8 by the table of the Unicode standard (3-7), written another way than is_utf8.
bool well_formed(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : 0; };
  const auto in = [](int x, int low, int high) { return low <= x && x <= high; };
  for (size_t i = 0; i < text.size();) {
    const int a = byte(i), b = byte(i + 1);
    size_t length = 1;
    bool good = a <= 0x7f;
    if (in(a, 0xc2, 0xdf)) length = 2, good = in(b, 0x80, 0xbf);
    if (in(a, 0xe0, 0xef))
      length = 3, good = in(b, a == 0xe0 ? 0xa0 : 0x80, a == 0xed ? 0x9f : 0xbf);
    if (in(a, 0xf0, 0xf4))
      length = 4, good = in(b, a == 0xf0 ? 0x90 : 0x80, a == 0xf4 ? 0x8f : 0xbf);
    for (size_t k = 2; k < length; ++k) good = good && in(byte(i + k), 0x80, 0xbf);
    if (!good) return false;
    i += length;
  }
  return true;
}

/// Words, signs that formats use, and in half of the texts bytes that are no UTF-8.
std::string text(std::mt19937_64& random) {
  static const std::vector<std::string> good{"a",
                                             "\"",
                                             "\\",
                                             "/",
                                             "\n",
                                             "\t",
                                             "\x01",
                                             "\x7f",
                                             std::string(1, '\0'),
                                             "na\xc3\xafve",
                                             "\xc2\x80",
                                             "\xe2\x82\xac",
                                             "\xed\x9f\xbf",
                                             "\xef\xbf\xbf",
                                             "\xf0\x9f\x98\x80",
                                             "\xf4\x8f\xbf\xbf",
                                             "\\u0000",
                                             "__metadata__"};
  static const std::vector<std::string> bad{"\x80",
                                            "\xbf",
                                            "\xc0\x80",
                                            "\xc1\xbf",
                                            "\xc3",
                                            "\xe0\x80\x80",
                                            "\xe2\x82",
                                            "\xed\xa0\x80",
                                            "\xed\xbf\xbf",
                                            "\xf0\x80\x80\x80",
                                            "\xf4\x90\x80\x80",
                                            "\xf5\x80\x80\x80",
                                            "\xff",
                                            "\xfe"};
  std::string all;
  const bool broken = random() % 2 == 0;
  for (uint64_t n = random() % 6; n > 0; --n)
    all += broken && random() % 3 == 0 ? bad[random() % bad.size()] : good[random() % good.size()];
  if (broken && random() % 4 == 0 && !all.empty()) all.resize(all.size() - 1);
  return all;
}

/// Whether `save` takes what it is given; its errors are bs::Error.
template <class Save>
bool saves(const Save& save) {
  try {
    save();
    return true;
  } catch (const Error&) {
    return false;
  }
}

constexpr int tries = 2000;

}  // namespace

TEST_CASE("text: is_utf8 is what the Unicode standard says, of every short sequence") {
  int64_t good = 0;
  std::string bytes;
  for (int length = 1; length <= 3; ++length) {
    for (int64_t code = 0; code < int64_t{1} << (8 * length); ++code) {
      bytes.clear();
      for (int i = 0; i < length; ++i) bytes += static_cast<char>(code >> (8 * i));
      const bool expected = well_formed(bytes);
      if (is_utf8(bytes) != expected) FAIL("bytes ", code, " of ", length);
      good += expected;
    }
  }
  // 128 of one byte; 1,920 of two, and 128^2; 61,440 of three, 2 x 128 x 1,920, and 128^3.
  CHECK(good == 128 + 1920 + 128 * 128 + 61440 + 2 * 128 * 1920 + 128 * 128 * 128);
}

TEST_CASE("text: what is saved of any bytes is read as it was, or is not saved") {
  const Scratch folder;
  const Tensor one = ones({1});
  std::mt19937_64 random(1);
  int taken[4] = {}, refused[4] = {};
  const auto count = [&](int what, bool is_saved) { ++(is_saved ? taken : refused)[what]; };
  for (int i = 0; i < tries; ++i) {
    const std::string name = text(random), key = text(random), value = text(random);
    CAPTURE(name);
    CAPTURE(key);
    CAPTURE(value);
    const bool all_good = well_formed(key) && well_formed(value);

    const std::string path = folder / "file";
    const Safetensors content{.tensors = {{name, one}}, .metadata = {{key, value}}};
    const bool tensors = saves([&] { save_safetensors(path, content); });
    count(0, tensors);
    CHECK(tensors == (all_good && well_formed(name) && name != "__metadata__"));
    if (tensors) {
      const Safetensors read = load_safetensors(path);
      CHECK(read.metadata == content.metadata);
      CHECK(read.tensors.contains(name));
      CHECK(map_safetensors(path).metadata == content.metadata);
    }

    const bool checkpoint = saves([&] {
      nn::save_checkpoint(path, {.step = i, .metadata = {{key, value}}});
    });
    count(1, checkpoint);
    CHECK(checkpoint == all_good);
    if (checkpoint) CHECK(nn::Checkpoint(path).metadata() == content.metadata);

    const bool arrays = saves([&] { save_npz(path, {{name, one}}); });
    count(2, arrays);
    CHECK((!arrays || well_formed(name)));
    if (arrays) CHECK(load_npz(path).contains(name));

    std::string json;
    const bool dumped = saves([&] { json = Json(Json::Object{{key, value}}).dump(); });
    count(3, dumped);
    CHECK(dumped == all_good);
    if (dumped) CHECK(Json::parse(json).find(key)->string() == value);
  }
  for (int what = 0; what < 4; ++what) {  // both happened
    CAPTURE(what);
    CHECK(taken[what] > tries / 10);
    CHECK(refused[what] > tries / 10);
  }
}

TEST_CASE("text: an alphabet is of what a checkpoint can hold") {
  std::mt19937_64 random(2);
  for (int i = 0; i < tries; ++i) {
    const std::string any = text(random);
    CAPTURE(any);
    data::Alphabet alphabet("");
    const bool taken = saves([&] { alphabet = data::Alphabet::of(std::span(&any, 1)); });
    CHECK(taken == well_formed(any));
    if (!taken) continue;
    CHECK(is_utf8(alphabet.text()));
    CHECK(alphabet.decode(alphabet.encode(any)) == any);
  }
}
