#include <bs/lib/summary_writer.h>

#include <bs/lib/host_view.h>
#include <bs/lib/json.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <vector>

namespace bs {

namespace {

/// A protocol buffer that is written field by field:
/// https://protobuf.dev/programming-guides/encoding
class Message {
 public:
  Message& number(int field, double value) { return fixed(field, 1, &value, sizeof value); }
  Message& number(int field, float value) { return fixed(field, 5, &value, sizeof value); }
  Message& integer(int field, int64_t value) {
    tag(field, 0);
    varint(static_cast<uint64_t>(value));
    return *this;
  }
  Message& text(int field, std::string_view value) {
    tag(field, 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& message(int field, const Message& value) { return text(field, value.bytes_); }
  Message& numbers(int field, const std::vector<double>& values) {
    return text(field,
                {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)});
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void tag(int field, unsigned wire_type) { varint(static_cast<unsigned>(field) << 3 | wire_type); }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  Message& fixed(int field, unsigned wire_type, const void* value, size_t size) {
    tag(field, wire_type);
    bytes_.append(static_cast<const char*>(value), size);
    return *this;
  }

  std::string bytes_;
};

// Fields of TensorFlow's event.proto, summary.proto and tensor.proto.
namespace event {
constexpr int wall_time = 1, step = 2, file_version = 3, summary = 5;
}
namespace summary {
constexpr int value = 1, tag = 1, simple_value = 2, histogram = 5, tensor = 8, metadata = 9;
}
namespace histogram {
constexpr int least = 1, greatest = 2, count = 3, sum = 4, sum_of_squares = 5, limits = 6, bins = 7;
}

/// CRC-32C (Castagnoli), which the records of an event file carry.
uint32_t crc32c(std::string_view bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> t{};
    for (uint32_t i = 0; i < t.size(); ++i) {
      uint32_t c = i;
      for (int bit = 0; bit < 8; ++bit) c = c >> 1 ^ (c & 1 ? 0x82f63b78 : 0);
      t[i] = c;
    }
    return t;
  }();
  uint32_t crc = ~uint32_t{0};
  for (const char byte : bytes) crc = crc >> 8 ^ table[(crc ^ static_cast<uint8_t>(byte)) & 0xff];
  return ~crc;
}

template <class T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

/// A checksum as TFRecord stores it, so that checksums of checksums differ.
uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xa282ead8;
}

double seconds_since_1970() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

Message stamped() { return Message().number(event::wall_time, seconds_since_1970()); }

std::string event_of(const Message& value, int64_t step) {
  return stamped()
      .integer(event::step, step)
      .message(event::summary, Message().message(summary::value, value))
      .bytes();
}

Message tagged(const char* op, std::string_view tag) {
  BS_CHECK(!tag.empty() && is_utf8(tag), "{}: a tag must be UTF-8 and not empty", op);
  return Message().text(summary::tag, tag);
}

std::vector<double> finite_values(const Tensor& tensor) {
  const Tensor host = host_copy(tensor);
  std::vector<double> values;
  values.reserve(static_cast<size_t>(host.numel()));
  visit_floating("add_histogram", host.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    if (host.numel() == 0) return;
    for (const T x : std::span(host.data<T>(), static_cast<size_t>(host.numel())))
      if (const auto value = static_cast<double>(x); std::isfinite(value)) values.push_back(value);
  });
  return values;
}

Message histogram_of(const std::vector<double>& values, int bins) {
  double least = 0, greatest = 0, sum = 0, squares = 0;
  if (!values.empty()) {
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    least = *low;
    greatest = *high;
  }
  std::vector<double> limits, counts(static_cast<size_t>(bins));
  const double width = greatest / bins - least / bins;  // their difference might overflow
  for (int i = 1; i <= bins; ++i) limits.push_back(i == bins ? greatest : least + width * i);
  for (const double value : values) {
    sum += value;
    squares += value * value;
    const double bin = width > 0 ? std::floor((value / width) - (least / width)) : 0;
    ++counts[static_cast<size_t>(std::clamp<double>(bin, 0, bins - 1))];
  }
  return Message()
      .number(histogram::least, least)
      .number(histogram::greatest, greatest)
      .number(histogram::count, static_cast<double>(values.size()))
      .number(histogram::sum, sum)
      .number(histogram::sum_of_squares, squares)
      .numbers(histogram::limits, limits)
      .numbers(histogram::bins, counts);
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

[[noreturn]] void fail(const std::string& path, int error) {
  BS_THROW(IoError, "{}: cannot be written: {}", path, std::strerror(error));
}

}  // namespace

SummaryWriter::SummaryWriter(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) fail(folder, error.value());
  const std::string start = folder + "/events.out.tfevents." +
                            std::to_string(static_cast<int64_t>(seconds_since_1970())) + "." +
                            host_name() + ".";
  constexpr int most_writers = 10'000;  // that begin in one second
  for (int i = 0; i < most_writers && descriptor_ < 0; ++i) {
    path_ = start + std::to_string(i);
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    if (descriptor_ < 0 && errno != EEXIST) break;
  }
  if (descriptor_ < 0) fail(path_, errno);
  try {
    write(stamped().text(event::file_version, "brain.Event:2").bytes());
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

SummaryWriter::~SummaryWriter() { ::close(descriptor_); }

void SummaryWriter::write(const std::string& event) {
  const uint64_t length = event.size();
  const uint32_t length_crc = masked_crc(bytes_of(length)), event_crc = masked_crc(event);
  std::string record(bytes_of(length));
  record.append(bytes_of(length_crc)).append(event).append(bytes_of(event_crc));
  for (std::string_view rest = record; !rest.empty();) {
    const ssize_t written = ::write(descriptor_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      // Half a record would hide all that follow it; if that fails too, nothing is left to try.
      if (::ftruncate(descriptor_, size_) != 0) fail(path_, errno);
      fail(path_, error);
    }
    rest.remove_prefix(static_cast<size_t>(written));
  }
  size_ += static_cast<int64_t>(record.size());
}

void SummaryWriter::add_scalar(std::string_view tag, double value, int64_t step) {
  Message point = tagged("add_scalar", tag);
  write(event_of(point.number(summary::simple_value, static_cast<float>(value)), step));
}

void SummaryWriter::add_histogram(std::string_view tag, const Tensor& values, int64_t step,
                                  int bins) {
  constexpr int most_bins = 1 << 20;
  Message point = tagged("add_histogram", tag);
  BS_CHECK(values.defined() && is_floating(values.dtype()),
           "add_histogram: '{}' is no floating tensor", tag);
  BS_CHECK(bins > 0 && bins <= most_bins, "add_histogram: {} bins, from 1 to {} are allowed", bins,
           most_bins);
  write(
      event_of(point.message(summary::histogram, histogram_of(finite_values(values), bins)), step));
}

void SummaryWriter::add_text(std::string_view tag, std::string_view text, int64_t step) {
  BS_CHECK(is_utf8(text), "add_text: the text of '{}' is not UTF-8", tag);
  constexpr int dt_string = 7;
  const Message shape = Message().message(2, Message().integer(1, 1));  // one axis of extent 1
  const Message tensor = Message().integer(1, dt_string).message(2, shape).text(8, text);
  const Message plugin = Message().message(1, Message().text(1, "text"));
  Message point = tagged("add_text", tag);
  write(event_of(point.message(summary::tensor, tensor).message(summary::metadata, plugin), step));
}

}  // namespace bs
