#include <bs/interop/image.h>
#include <bs/lib/peak_memory.h>
#include <bs/tests/support/reference.h>
#include <bs/tests/support/scratch.h>
#include <doctest/doctest.h>
#include <zlib.h>

#include <cmath>

using namespace bs;
using namespace bs::test;

namespace {

/// Two rows of three pixels: red, green, blue; black, white, half transparent red.
const std::vector<uint8_t> pixels{255, 0, 0, 255, 0,   255, 0,   255, 0,   0, 255, 255,
                                  0,   0, 0, 255, 255, 255, 255, 255, 255, 0, 0,   128};

void write_png(const std::string& path) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = 3;
  image.height = 2;
  image.format = PNG_FORMAT_RGBA;
  REQUIRE(png_image_write_to_file(&image, path.c_str(), 0, pixels.data(), 0, nullptr) != 0);
}

/// 16 x 8 pixels of one colour, in which JPEG loses next to nothing.
std::string jpeg_bytes() {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* memory = nullptr;
  unsigned long size = 0;  // NOLINT(google-runtime-int): libjpeg's type
  jpeg_mem_dest(&jpeg, &memory, &size);
  jpeg.image_width = 16;
  jpeg.image_height = 8;
  jpeg.input_components = 3;
  jpeg.in_color_space = JCS_RGB;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, 95, TRUE);
  jpeg_start_compress(&jpeg, TRUE);
  std::vector<uint8_t> row;
  for (int i = 0; i < 16; ++i) row.insert(row.end(), {200, 100, 50});
  for (int i = 0; i < 8; ++i) {
    JSAMPROW start = row.data();
    jpeg_write_scanlines(&jpeg, &start, 1);
  }
  jpeg_finish_compress(&jpeg);
  std::string bytes(reinterpret_cast<char*>(memory), size);
  jpeg_destroy_compress(&jpeg);
  std::free(memory);
  return bytes;
}

std::vector<double> values(const Tensor& x) { return Reference::of(x).values; }

}  // namespace

TEST_CASE("image: PNG in colour, with opacity, and in grey") {
  const Scratch folder;
  const std::string path = folder / "a.png";
  write_png(path);
  const Tensor colour = read_image(path);  // u8 [3, height, width]
  CHECK(colour.shape() == Shape{3, 2, 3});
  CHECK(colour.dtype() == u8);
  const std::vector<double> red = values(colour.select(0, 0));
  CHECK(std::vector<double>(red.begin(), red.end() - 1) == std::vector<double>{255, 0, 0, 0, 255});
  CHECK(red.back() > 100);  // what is half transparent is darker
  CHECK(red.back() < 255);
  CHECK(values(colour.select(0, 2)) == std::vector<double>{0, 0, 255, 0, 255, 0});
  const Tensor all = read_image(path, 4);
  CHECK(values(all.permute({1, 2, 0})) == std::vector<double>(pixels.begin(), pixels.end()));
  const std::vector<double> grey = values(read_image(path, 1));
  CHECK(grey[3] == 0);
  CHECK(grey[4] == 255);
  CHECK(grey[1] > grey[0]);  // green is brighter than red, and red than blue
  CHECK(grey[0] > grey[2]);
}

TEST_CASE("image: JPEG in colour and in grey") {
  const Scratch folder;
  const std::string path = folder / "a.jpg";
  write_file(path, jpeg_bytes());
  const Tensor colour = read_image(path);
  CHECK(colour.shape() == Shape{3, 8, 16});
  const double expected[] = {200, 100, 50};
  for (int c = 0; c < 3; ++c)
    for (const double v : values(colour.select(0, c))) CHECK(std::abs(v - expected[c]) <= 3);
  const Tensor grey = read_image(path, 1);
  CHECK(grey.shape() == Shape{1, 8, 16});
  CHECK(std::abs(values(grey)[0] - (.299 * 200 + .587 * 100 + .114 * 50)) <= 3);
}

TEST_CASE("image: no memory for pixels that a header only claims") {
  const Scratch folder;
  const std::string path = folder / "picture";
  write_png(path);
  std::string png = read_file(path);
  const auto big_endian = [](std::string& bytes, size_t at, uint32_t value, size_t size) {
    for (size_t i = 0; i < size; ++i)
      bytes[at + i] = static_cast<char>(value >> 8 * (size - 1 - i));
  };
  big_endian(png, 16, 20000, 4);
  big_endian(png, 20, 20000, 4);
  big_endian(png, 29,
             static_cast<uint32_t>(::crc32(0, reinterpret_cast<const Bytef*>(&png[12]), 17)), 4);
  std::string jpeg = jpeg_bytes();
  const size_t frame = jpeg.find("\xff\xc0");
  REQUIRE(frame != std::string::npos);
  big_endian(jpeg, frame + 5, 20000, 2);
  big_endian(jpeg, frame + 7, 20000, 2);
  for (const std::string& bytes : {png, jpeg}) {
    write_file(path, bytes);
    const PeakMemory peak(Device::cpu());
    CHECK_THROWS_WITH_AS(read_image(path), doctest::Contains("a picture of 20000 x 20000 pixels"),
                         IoError);
    CHECK(peak.bytes() < 100'000);
  }
}

TEST_CASE("image: a large picture of one colour is no claim") {
  const Scratch folder;
  const std::string path = folder / "picture";
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = image.height = 4000;
  image.format = PNG_FORMAT_GRAY;
  const std::vector<uint8_t> grey(16'000'000, 128);
  REQUIRE(png_image_write_to_file(&image, path.c_str(), 0, grey.data(), 0, nullptr) != 0);
  MESSAGE(read_file(path).size(), " bytes of PNG");
  CHECK(read_image(path, 1).shape() == Shape{1, 4000, 4000});
}

TEST_CASE("image: what is no picture, or only a part of one") {
  const Scratch folder;
  const std::string path = folder / "a";
  write_file(path, "");
  CHECK_THROWS_WITH_AS(read_image(path), (path + ": is neither a PNG nor a JPEG file").c_str(),
                       IoError);
  write_png(path);
  const std::string png = read_file(path), jpeg = jpeg_bytes();
  CHECK_THROWS_AS(read_image(path, 2), Error);
  for (const std::string& whole : {png, jpeg})
    for (const size_t part : {size_t{4}, size_t{20}, whole.size() / 2, whole.size() - 20}) {
      CAPTURE(part);
      write_file(path, whole.substr(0, part));
      CHECK_THROWS_AS(read_image(path), IoError);
    }
  write_file(path, jpeg);
  CHECK_THROWS_AS(read_image(path, 4), IoError);
  CHECK_THROWS_AS(read_image(folder / "none"), IoError);
}
