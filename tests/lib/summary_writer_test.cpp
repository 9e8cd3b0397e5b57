#include <bs/lib/check.h>
#include <bs/lib/summary_writer.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <bs/tests/support/scratch.h>
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>

using namespace bs;
using namespace bs::test;

namespace {

template <class T>
T value_at(std::string_view bytes, size_t at) {
  T value;
  REQUIRE(at + sizeof value <= bytes.size());
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

/// CRC-32C a bit at a time, masked as TFRecord does.
uint32_t slow_masked_crc(std::string_view bytes) {
  uint32_t crc = 0xffffffff;
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (0x82f63b78U & (0U - (crc & 1U)));
  }
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

/// The events of a file, whose checksums are right.
std::vector<std::string> events_of(const std::string& path) {
  const std::string file = read_file(path);
  const std::string_view text = file;
  std::vector<std::string> events;
  for (size_t at = 0; at < text.size();) {
    const auto length = value_at<uint64_t>(text, at);
    CHECK(value_at<uint32_t>(text, at + 8) == slow_masked_crc(text.substr(at, 8)));
    REQUIRE(at + 16 + length <= text.size());
    events.emplace_back(text.substr(at + 12, length));
    CHECK(value_at<uint32_t>(text, at + 12 + length) == slow_masked_crc(events.back()));
    at += 16 + length;
  }
  return events;
}

/// The fields of a protocol buffer, as the bytes of their values; those that repeat, joined.
std::map<int, std::string> fields_of(std::string_view bytes) {
  std::map<int, std::string> fields;
  size_t at = 0;
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = value_at<uint8_t>(bytes, at++);
      value |= uint64_t{byte & 0x7fU} << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < bytes.size()) {
    const uint64_t tag = varint();
    std::string value;
    const auto take = [&](size_t count) {
      REQUIRE(at + count <= bytes.size());
      value = bytes.substr(at, count);
      at += count;
    };
    if (tag % 8 == 0) {
      const uint64_t number = varint();
      value.assign(reinterpret_cast<const char*>(&number), sizeof number);
    } else if (tag % 8 == 2) {
      take(varint());
    } else {
      REQUIRE((tag % 8 == 1 || tag % 8 == 5));
      take(tag % 8 == 1 ? 8 : 4);
    }
    fields[static_cast<int>(tag / 8)] += value;
  }
  return fields;
}

/// The value that the last event of a file holds.
std::map<int, std::string> last_value(const SummaryWriter& writer, int64_t step) {
  auto event = fields_of(events_of(writer.path()).back());
  CHECK(value_at<int64_t>(event[2], 0) == step);
  CHECK(value_at<double>(event[1], 0) > 1.6e9);
  return fields_of(fields_of(event[5])[1]);
}

double double_of(const std::string& field, size_t index = 0) {
  return value_at<double>(field, 8 * index);
}

}  // namespace

TEST_CASE("summary_writer begins a file with its version") {
  const Scratch folder;
  const SummaryWriter a(folder / "runs/one"), b(folder / "runs/one");
  CHECK(a.path() != b.path());
  const auto events = events_of(a.path());
  REQUIRE(events.size() == 1);
  CHECK(fields_of(events[0])[3] == "brain.Event:2");
}

TEST_CASE("summary_writer adds points of curves") {
  const Scratch folder;
  SummaryWriter writer(folder / "run");
  for (const auto& [value, step] :
       std::map<double, int64_t>{{0.25, 0}, {-1e30, -3}, {7, int64_t{1} << 40}}) {
    writer.add_scalar("train/loss é", value, step);
    auto point = last_value(writer, step);
    CHECK(point[1] == "train/loss é");
    CHECK(value_at<float>(point[2], 0) == static_cast<float>(value));
  }
  writer.add_scalar("x", std::numeric_limits<double>::quiet_NaN(), 1);
  CHECK(std::isnan(value_at<float>(last_value(writer, 1)[2], 0)));
  CHECK(events_of(writer.path()).size() == 5);
}

TEST_CASE("summary_writer counts values in bins") {
  const Scratch folder;
  SummaryWriter writer(folder / "run");
  Reference values({2, 6});
  std::iota(values.values.begin(), values.values.end(), 0);
  for (const DType dtype : {f64, f32, f16, bf16}) {
    writer.add_histogram("w", values.tensor(dtype, test_device()).transpose(0, 1), 2, 4);
    auto h = fields_of(last_value(writer, 2)[5]);
    CHECK(double_of(h[1]) == 0);
    CHECK(double_of(h[2]) == 11);
    CHECK(double_of(h[3]) == 12);
    CHECK(double_of(h[4]) == 66);
    CHECK(double_of(h[5]) == 506);
    for (size_t i = 0; i < 4; ++i) {
      CHECK(double_of(h[6], i) == 2.75 * static_cast<double>(i + 1));
      CHECK(double_of(h[7], i) == 3);
    }
  }
}

TEST_CASE("summary_writer counts what is finite, however large, equal or absent") {
  const Scratch folder;
  SummaryWriter writer(folder / "run");
  const auto count = [&](const std::vector<double>& list) {
    Reference values({static_cast<int64_t>(list.size())});
    values.values = list;
    writer.add_histogram("w", values.tensor(f64, test_device()), 0, 2);
    auto h = fields_of(last_value(writer, 0)[5]);
    return std::pair(double_of(h[7], 0), double_of(h[7], 1));
  };
  const double inf = std::numeric_limits<double>::infinity(), nan = -std::nan("");
  CHECK(count({nan, 1, inf, 2, -inf}) == std::pair(1.0, 1.0));
  CHECK(count({5, 5, 5}) == std::pair(3.0, 0.0));
  CHECK(count({}) == std::pair(0.0, 0.0));
  CHECK(count({-1.7e308, 1.7e308}) == std::pair(1.0, 1.0));
}

TEST_CASE("summary_writer adds text") {
  const Scratch folder;
  SummaryWriter writer(folder / "run");
  writer.add_text("options", "| width | 64 |", 0);
  auto value = last_value(writer, 0);
  auto tensor = fields_of(value[8]);
  CHECK(value_at<int64_t>(tensor[1], 0) == 7);
  CHECK(tensor[8] == "| width | 64 |");
  CHECK(fields_of(fields_of(value[9])[1])[1] == "text");
}

TEST_CASE("summary_writer says what it refuses") {
  const Scratch folder;
  write_file(folder / "file", "");
  CHECK_THROWS_AS(SummaryWriter(folder / "file"), IoError);
  CHECK_THROWS_AS(SummaryWriter(folder / "file/below"), IoError);
  SummaryWriter writer(folder / "run");
  CHECK_THROWS_WITH_AS(writer.add_scalar("", 1, 1), "add_scalar: a tag must be UTF-8 and not empty",
                       Error);
  CHECK_THROWS_AS(writer.add_text("a", "\xff", 1), Error);
  CHECK_THROWS_AS(writer.add_histogram("a", Tensor(), 1), Error);
  const Tensor x = Reference({1}).tensor(f32, test_device());
  CHECK_THROWS_AS(writer.add_histogram("a", x, 1, 0), Error);
  CHECK_THROWS_AS(writer.add_histogram("a", x, 1, 1 << 30), Error);
  CHECK(events_of(writer.path()).size() == 1);
}
