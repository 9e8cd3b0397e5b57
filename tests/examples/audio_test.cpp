#include <bs/examples/rnnt_lstm/audio.h>
#include <bs/lib/check.h>
#include <bs/lib/file.h>
#include <bs/tests/support/scratch.h>
#include <doctest/doctest.h>
#include <sndfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmath>

using namespace bs;
using namespace bs::example;

namespace {

/// A wav file of 16-bit samples, written byte by byte.
std::string wav(int rate, int channels, const std::vector<int16_t>& samples) {
  std::string bytes;
  const auto put = [&](uint32_t value, int size) {
    for (int i = 0; i < size; ++i) bytes += static_cast<char>(value >> (8 * i) & 255);
  };
  const auto size = static_cast<uint32_t>(2 * samples.size());
  bytes += "RIFF";
  put(36 + size, 4);
  bytes += "WAVEfmt ";
  put(16, 4);
  put(1, 2);
  put(static_cast<uint32_t>(channels), 2);
  put(static_cast<uint32_t>(rate), 4);
  put(static_cast<uint32_t>(rate) * static_cast<uint32_t>(channels) * 2, 4);
  put(static_cast<uint32_t>(channels * 2), 2);
  put(16, 2);
  bytes += "data";
  put(size, 4);
  for (const int16_t s : samples) put(static_cast<uint16_t>(s), 2);
  return bytes;
}

}  // namespace

TEST_CASE("audio: channels are mixed, the rate is changed, and what is no sound is named") {
  const test::Scratch scratch;
  test::write_file(scratch / "a.wav", wav(8000, 2, {16384, 0, -16384, -16384, 0, 8192}));
  CHECK(read_audio(scratch / "a.wav", 8000) == std::vector<float>{0.25F, -0.5F, 0.125F});
  test::write_file(scratch / "b.wav", wav(16000, 1, std::vector<int16_t>(1600, 16384)));
  const auto half = read_audio(scratch / "b.wav", 8000);
  CHECK(half.size() == 800);
  CHECK(half[400] == doctest::Approx(0.5).epsilon(1e-5));
  test::write_file(scratch / "c.wav", "no sound");
  CHECK_THROWS_AS(read_audio(scratch / "c.wav", 8000), IoError);
  CHECK_THROWS_AS(read_audio(scratch / "none.wav", 8000), IoError);
}

TEST_CASE("audio: a header that lies, and samples that are no numbers") {
  const test::Scratch scratch;
  const std::string path = scratch / "a.wav";
  const auto text_of = [&](const std::string& bytes) {
    test::write_file(path, bytes);
    try {
      read_audio(path, 16000);
    } catch (const IoError& error) {  // and nothing else
      return std::string(error.what());
    }
    return std::string("read");
  };
  const std::vector<int16_t> samples(800, 1000);
  for (const int rate : {1, 999, 768'001, 2'000'000'000}) {
    CAPTURE(rate);
    CHECK(text_of(wav(rate, 1, samples)) ==
          format("{}: {} samples a second are not from 1000 to 768000", path, rate));
  }
  for (const int rate : {0, -1}) CHECK(text_of(wav(rate, 1, samples)) != "read");
  for (const int channels : {0, 2000, 65535})
    CHECK(text_of(wav(8000, channels, samples)) != "read");
  test::write_file(path, wav(1000, 1, samples));
  CHECK(read_audio(path, 16000).size() == 16 * samples.size());  // stretched as far as it can be

  // Sizes of 4 GB in the header; the file has 1,600 bytes of samples.
  std::string whole = wav(16000, 1, samples);
  for (const size_t at : {size_t{4}, size_t{40}}) whole.replace(at, 4, "\xff\xff\xff\xff");
  test::write_file(path, whole);
  CHECK(read_audio(path, 16000).size() == samples.size());
  for (size_t length = 0; length < 60; ++length) text_of(whole.substr(0, length));

  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    std::string floats = wav(16000, 1, samples);
    floats[20] = 3;  // IEEE floats of 32 bits
    floats[34] = 32;
    floats.replace(44 + 400, sizeof bad, reinterpret_cast<const char*>(&bad), sizeof bad);
    CHECK(text_of(floats) == path + ": a sample is not finite");
  }
  // Numbers, but between them another rate finds larger ones.
  std::string floats = wav(8000, 1, samples);
  floats[20] = 3;
  floats[34] = 32;
  for (size_t at = 44; at < floats.size(); at += sizeof(float)) {
    const float large = at / 16 % 2 == 0 ? 3.4e38F : -3.4e38F;
    floats.replace(at, sizeof large, reinterpret_cast<const char*>(&large), sizeof large);
  }
  CHECK(text_of(floats) == path + ": a sample is not finite");
  test::write_file(path, wav(16000, 1, {}));
  CHECK(read_audio(path, 16000).empty());
}

TEST_CASE("audio: a small file cannot become hours of sound") {
  const test::Scratch scratch;
  const std::string path = scratch / "silence.flac";
  const auto write = [&](int rate, int64_t samples) {
    SF_INFO info = {};
    info.samplerate = rate, info.channels = 1, info.format = SF_FORMAT_FLAC | SF_FORMAT_PCM_16;
    SNDFILE* const file = sf_open(path.c_str(), SFM_WRITE, &info);
    REQUIRE(file != nullptr);
    const std::vector<int16_t> silence(static_cast<size_t>(samples));
    CHECK(sf_write_short(file, silence.data(), samples) == samples);
    sf_close(file);
  };
  constexpr int64_t most = 1 << 24;
  const auto refusal = [&] {
    return format("{}: its {} bytes become more than {} samples", path, InputFile(path).size(),
                  most);
  };
  write(8000, most);
  CHECK(InputFile(path).size() < 100'000);
  CHECK(read_audio(path, 8000).size() == most);
  CHECK_THROWS_WITH_AS(read_audio(path, 8001), refusal().c_str(), IoError);
  write(8000, most + 1);
  CHECK_THROWS_WITH_AS(read_audio(path, 8000), refusal().c_str(), IoError);
  CHECK_THROWS_WITH_AS(read_audio(path, 4000), refusal().c_str(), IoError);
  write(1000, 100'000);
  CHECK_THROWS_WITH_AS(read_audio(path, 192'000), refusal().c_str(), IoError);
}

TEST_CASE("audio: pipes, devices, sockets and folders are refused without waiting") {
  const test::Scratch scratch;
  REQUIRE(::mkfifo((scratch / "pipe").c_str(), 0600) == 0);
  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string name = scratch / "socket";
  REQUIRE(name.size() < sizeof address.sun_path);
  name.copy(address.sun_path, name.size());
  REQUIRE(::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  for (const std::string& path : {scratch / "pipe", name, scratch / "", std::string("/dev/zero")}) {
    CAPTURE(path);
    ::alarm(10);  // ends a reader that waits
    CHECK_THROWS_AS(read_audio(path, 8000), IoError);
    ::alarm(0);
  }
  ::close(listener);
}
