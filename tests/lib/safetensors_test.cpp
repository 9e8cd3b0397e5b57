#include <bs/lib/safetensors.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <bs/tests/support/scratch.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>

using namespace bs;
using namespace bs::test;
using namespace std::string_literals;

namespace {

/// What `safetensors` 0.8 for Python wrote of the tensors below.
const std::string theirs =
    "P\1\0\0\0\0\0\0"
    R"({"__metadata__":{"format":"pt","note":"café \"x\""},)"
    R"("step":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
    R"("w":{"dtype":"F32","shape":[2,2],"data_offsets":[8,24]},)"
    R"("b":{"dtype":"BF16","shape":[2],"data_offsets":[24,28]},)"
    R"("e":{"dtype":"F16","shape":[0,3],"data_offsets":[28,28]},)"
    R"("mask":{"dtype":"BOOL","shape":[3],"data_offsets":[28,31]}})"
    "\7\0\0\0\0\0\0\0\0\0\200?\0\0\0@\0\0@@\0\0\200@\300?\200\277\1\0\1"s;

Tensor tensor(const Shape& shape, std::vector<double> values, DType dtype) {
  Reference r(shape);
  r.values = std::move(values);
  return r.tensor(dtype, test_device());
}

Safetensors content() {
  return {{{"w", tensor({2, 2}, {1, 2, 3, 4}, f32)},
           {"b", tensor({2}, {1.5, -1}, bf16)},
           {"mask", tensor({3}, {1, 0, 1}, boolean)},
           {"step", tensor({}, {7}, i64)},
           {"e", tensor({0, 3}, {}, f16)}},
          {{"format", "pt"}, {"note", "café \"x\""}}};
}

void check_equal(const Safetensors& a, const Safetensors& b) {
  CHECK(a.metadata == b.metadata);
  REQUIRE(a.tensors.size() == b.tensors.size());
  for (const auto& [key, x] : a.tensors) {
    const std::string name = key;
    CAPTURE(name);
    REQUIRE(b.tensors.count(name) == 1);
    const Tensor& y = b.tensors.at(name);
    CHECK(x.dtype() == y.dtype());
    CHECK(x.shape() == y.shape());
    CHECK(Reference::of(x).values == Reference::of(y).values);
  }
}

std::string file_of(const std::string& header, const std::string& data) {
  std::string length(8, '\0');
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(uint64_t{header.size()} >> (8 * i));
  return length + header + data;
}

void check_refused(const std::string& bytes, const std::string& reason) {
  const Scratch folder;
  const std::string path = folder / "x.safetensors";
  write_file(path, bytes);
  CHECK_THROWS_WITH_AS(load_safetensors(path), (path + ": " + reason).c_str(), IoError);
}

}  // namespace

TEST_CASE("safetensors files are those of the reference implementation, both ways") {
  const Scratch folder;
  const std::string path = folder / "x.safetensors";
  save_safetensors(path, content());
  CHECK(read_file(path) == theirs);
  check_equal(load_safetensors(path, test_device()), content());
  CHECK(load_safetensors(path, test_device()).tensors.at("w").device() == test_device());
  CHECK(folder.files() == 1);
}

TEST_CASE("safetensors keeps every dtype, and views by their values") {
  const Scratch folder;
  const std::string path = folder / "x.safetensors";
  Safetensors saved;
  for (DType dtype : {boolean, u8, i32, i64, f16, bf16, f32, f64}) {
    const double least = dtype == u8 ? 0 : -100;
    const Tensor x = random_reference({3, 4}, 1, least, 100).tensor(dtype, test_device());
    saved.tensors.emplace(to_string(dtype), x);
    saved.tensors.emplace(to_string(dtype) + ".turned", x.transpose(0, 1));
  }
  save_safetensors(path, saved);
  check_equal(load_safetensors(path), saved);
  save_safetensors(path, {});
  check_equal(load_safetensors(path), {});
}

TEST_CASE("safetensors refuses damaged files") {
  check_refused("", "truncated: 8 bytes wanted at 0, the file has 0");
  check_refused("\1\0\0\0\0\0\0\1{"s,
                "is no safetensors file: a header of 72057594037927937 bytes is too long");
  check_refused("\1\341\365\5\0\0\0\0{"s,
                "is no safetensors file: a header of 100000001 bytes is too long");
  check_refused("\5\0\0\0\0\0\0\0{}"s, "truncated: 5 bytes wanted at 8, the file has 10");
  check_refused(file_of(" {}", ""), "is no safetensors file");
  check_refused(file_of("{}x", ""), "json: something follows the value at byte 2");
  check_refused(theirs.substr(0, theirs.size() - 1), "the tensors take 31 bytes, the file has 30");
  check_refused(theirs + "x", "the tensors take 31 bytes, the file has 32");
  check_refused(file_of(R"({"a":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}})", "\2"),
                "a boolean is neither 0 nor 1");
}

TEST_CASE("safetensors refuses headers that lie") {
  const auto refuse = [](const std::string& header, const std::string& data,
                         const std::string& reason) {
    check_refused(file_of(header, data), reason);
  };
  refuse(R"({"a":{"dtype":"F8","shape":[1],"data_offsets":[0,1]}})", "x",
         "a: dtype F8 is not supported");
  refuse(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}})", "x",
         "a: u8 of shape [2] takes 2 bytes, not [0, 1)");
  refuse(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", "x",
         "a: u8 of shape [1] takes 1 bytes, not [1, 0)");
  refuse(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[-1,0]}})", "x",
         "a: u8 of shape [1] takes 1 bytes, not [-1, 0)");
  refuse(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", "x", "a: negative extent -1");
  refuse(R"({"a":{"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", "",
         "a: the shape is too large");
  // An extent of 0 makes the rest no smaller.
  refuse(R"({"a":{"dtype":"U8","shape":[4611686018427387904,0],"data_offsets":[0,0]}})", "",
         "a: the shape is too large");
  refuse(R"({"a":{"dtype":"U8","shape":[0,4611686018427387904],"data_offsets":[0,0]}})", "",
         "a: the shape is too large");
  refuse(R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", "x",
         "a: more than 8 axes");
  refuse(R"({"a":{"dtype":"U8","shape":[1.5],"data_offsets":[0,1]}})", "x",
         "a: json: expected an integer, found a number");
  refuse(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", "x",
         "a: data_offsets are 1 numbers");
  refuse(R"({"a":{"dtype":"U8","shape":[1]}})", "x", "a: data_offsets is missing");
  refuse(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}})", "x",
         "a: a member is unknown");
  refuse(R"({"a":1})", "", "a: json: expected an object, found an integer");
  refuse(R"({"__metadata__":{"a":1}})", "",
         "__metadata__: json: expected a string, found an integer");
  // A hole, an overlap, and one name twice.
  refuse(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
         R"("b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
         "xyz", "b: begins at 2, the data before it ends at 1");
  refuse(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
         R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
         "xyz", "b: begins at 1, the data before it ends at 2");
  refuse(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
         R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
         "xy", "json: an object has a member twice at byte 105");
}

TEST_CASE("safetensors refuses to write what it could not read") {
  const Scratch folder;
  const std::string path = folder / "x.safetensors";
  CHECK_THROWS_WITH_AS(save_safetensors(path, {{{"w", Tensor()}}, {}}),
                       "safetensors: tensor w is undefined", Error);
  CHECK_THROWS_WITH_AS(save_safetensors(path, {{{"__metadata__", tensor({1}, {1}, f32)}}, {}}),
                       "safetensors: no tensor may be named __metadata__", Error);
  CHECK(folder.files() == 0);
}

TEST_CASE("safetensors: a mapped file has the same tensors, and lives as long as they do") {
  const Scratch folder;
  const std::string path = folder / "x.safetensors";
  save_safetensors(path, content());
  check_equal(map_safetensors(path), load_safetensors(path));

  Tensor w = map_safetensors(path).tensors.at("w");  // the others are gone
  const Tensor again = map_safetensors(path).tensors.at("w");
  std::fill_n(w.data<float>(), 4, 9.0F);  // changes neither the file nor another map of it
  CHECK(Reference::of(again).values == std::vector<double>{1, 2, 3, 4});
  CHECK(Reference::of(load_safetensors(path).tensors.at("w")).values ==
        std::vector<double>{1, 2, 3, 4});
  CHECK(std::remove(path.c_str()) == 0);
  CHECK(Reference::of(w).values == std::vector<double>{9, 9, 9, 9});
  CHECK(Reference::of(again).values == std::vector<double>{1, 2, 3, 4});
}

TEST_CASE("safetensors: mapped tensors that are not aligned, empty, or not booleans") {
  const Scratch folder;
  const std::string path = folder / "x.safetensors";
  const auto with = [&](const std::string& header, const std::string& data) {
    write_file(path, file_of(header, data));
    return map_safetensors(path);
  };
  // A header of 57 bytes: the numbers begin at byte 65.
  const std::string odd = R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}   )";
  REQUIRE(odd.size() % 4 == 1);
  CHECK(with(odd, "\0\0\200?"s).tensors.at("x").item() == 1);
  CHECK(with("{}", "").tensors.empty());
  CHECK_THROWS_WITH_AS(with(R"({"x":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}})", "\2"),
                       (path + ": a boolean is neither 0 nor 1").c_str(), IoError);
  CHECK_THROWS_AS(with(odd, "\0\0\200"s), IoError);
  CHECK_THROWS_AS(map_safetensors(folder / "none"), IoError);
}

TEST_CASE("safetensors: a file above 4 GiB") {
  const Scratch folder;
  const std::string path = folder / "x.safetensors";
  const int64_t large = (int64_t{1} << 32) + 4096;
  const std::string end = std::to_string(large);
  std::string header = R"({"large":{"dtype":"U8","shape":[)" + end + R"(],"data_offsets":[0,)" +
                       end + R"(]},"tail":{"dtype":"F32","shape":[2],"data_offsets":[)" + end +
                       "," + std::to_string(large + 8) + "]}}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::string head = file_of(header, "");
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out | std::ios::trunc);
  file << head << '\3';
  file.seekp(static_cast<std::streamoff>(head.size()) + large - 1);  // a hole up to here
  file << '\5' << "\0\0\200?\0\0\0@"s;
  file.close();
  if (!file) {
    MESSAGE("SKIPPED: no file of 4 GiB can be made here");
    return;
  }
  const Safetensors mapped = map_safetensors(path);
  CHECK(Reference::of(mapped.tensors.at("tail")).values == std::vector<double>{1, 2});
  const Tensor bytes = mapped.tensors.at("large");
  CHECK(bytes.numel() == large);
  CHECK(bytes.select(0, 0).item() == 3);
  CHECK(bytes.select(0, -2).item() == 0);
  CHECK(bytes.select(0, -1).item() == 5);
}
