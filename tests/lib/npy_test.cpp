#include <bs/lib/npy.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <bs/tests/support/scratch.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;
using namespace std::string_literals;

namespace {

/// A file as NumPy 2.4 lays it out: 128 bytes of header, then the data.
std::string numpy_file(int major, const std::string& dictionary, const std::string& data) {
  const size_t start = major == 1 ? 10 : 12;
  std::string length = major == 1 ? "\166\0"s : "\164\0\0\0"s;
  return "\223NUMPY"s + static_cast<char>(major) + "\0"s + length + dictionary +
         std::string(127 - start - dictionary.size(), ' ') + "\n" + data;
}

std::string dictionary(const std::string& descr, const std::string& shape,
                       const std::string& fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }";
}

struct Sample {
  DType dtype;
  Shape shape;
  std::vector<double> values;
  std::string file;
};

/// Arrays that NumPy (bf16: with ml_dtypes) wrote, byte for byte.
std::vector<Sample> samples() {
  return {
      {f32,
       {2, 3},
       {1, 2, 3, 4, 5, 6},
       numpy_file(1, dictionary("<f4", "(2, 3)"),
                  "\0\0\200?\0\0\0@\0\0@@\0\0\200@\0\0\240@\0\0\300@"s)},
      {boolean, {3}, {1, 0, 1}, numpy_file(1, dictionary("|b1", "(3,)"), "\1\0\1"s)},
      {f16, {3}, {0.5, -2, 65504}, numpy_file(1, dictionary("<f2", "(3,)"), "\0008\000\300\377{"s)},
      {f64, {}, {0.1}, numpy_file(1, dictionary("<f8", "()"), "\232\231\231\231\231\231\271?"s)},
      {i64, {0, 4}, {}, numpy_file(1, dictionary("<i8", "(0, 4)"), "")},
      {bf16, {2}, {1, -3.5}, numpy_file(1, dictionary("<V2", "(2,)"), "\200?`\300"s)},
      {u8, {1}, {255}, numpy_file(1, dictionary("|u1", "(1,)"), "\377"s)},
      {i32, {1, 1}, {-2}, numpy_file(1, dictionary("<i4", "(1, 1)"), "\376\377\377\377"s)},
  };
}

void check_refused(const std::string& content, const std::string& reason) {
  const Scratch folder;
  const std::string path = folder / "x.npy";
  write_file(path, content);
  CHECK_THROWS_WITH_AS(load_npy(path), (path + ": " + reason).c_str(), IoError);
}

}  // namespace

TEST_CASE("npy files are NumPy's, both ways") {
  const Scratch folder;
  const std::string path = folder / "x.npy";
  for (const Sample& s : samples()) {
    CAPTURE(to_string(s.dtype));
    Reference values(s.shape);
    values.values = s.values;
    save_npy(path, values.tensor(s.dtype, test_device()));
    CHECK(read_file(path) == s.file);
    const Tensor back = load_npy(path, test_device());
    CHECK(back.dtype() == s.dtype);
    CHECK(back.shape() == s.shape);
    CHECK(back.device() == test_device());
    CHECK(Reference::of(back).values == s.values);
  }
  CHECK_THROWS_WITH_AS(save_npy(path, Tensor()), doctest::Contains("save_npy: the tensor for"),
                       Error);
  CHECK(folder.files() == 1);
}

TEST_CASE("npy reads what other writers make") {
  const Scratch folder;
  const std::string path = folder / "x.npy";
  const std::string data = "\7\0\0\0\10\0\0\0"s;
  const std::vector<double> expected = {7, 8};
  for (const std::string& content :
       {numpy_file(2, dictionary("<i4", "(2,)"), data),
        numpy_file(3, dictionary("<i4", "(2,)"), data),
        numpy_file(1, dictionary("<i4", "(2L,)"), data),
        numpy_file(1, "{\"shape\":(2,),'descr':'<i4','fortran_order':False}", data)}) {
    write_file(path, content);
    CHECK(Reference::of(load_npy(path)).values == expected);
  }
  write_file(path, numpy_file(1, dictionary("|V2", "(2,)"), "\200?`\300"s));
  CHECK(load_npy(path).dtype() == bf16);
  // numpy.asfortranarray([[1, 2, 3], [4, 5, 6]])
  write_file(path, numpy_file(1, dictionary("<i4", "(2, 3)", "True"),
                              "\1\0\0\0\4\0\0\0\2\0\0\0\5\0\0\0\3\0\0\0\6\0\0\0"s));
  const Tensor turned = load_npy(path);
  CHECK(turned.is_contiguous());
  CHECK(turned.shape() == Shape{2, 3});
  CHECK(Reference::of(turned).values == std::vector<double>{1, 2, 3, 4, 5, 6});
}

TEST_CASE("npy widens integers that have no dtype") {
  const Scratch folder;
  const std::string path = folder / "x.npy";
  const auto check = [&](const char* descr, const std::string& data, DType dtype,
                         const std::vector<double>& values) {
    CAPTURE(descr);
    write_file(path, numpy_file(1, dictionary(descr, "(2,)"), data));
    const Tensor x = load_npy(path, test_device());
    CHECK(x.dtype() == dtype);
    CHECK(Reference::of(x).values == values);
  };
  check("|i1", "\200\177"s, i32, {-128, 127});
  check("<i2", "\0\200\377\177"s, i32, {-32768, 32767});
  check("<u2", "\377\377\1\0"s, i32, {65535, 1});
  check("<u4", "\377\377\377\377\2\0\0\0"s, i64, {4294967295.0, 2});
  check_refused(numpy_file(1, dictionary("<i2", "(2,)"), "\0\0\0"s),
                "<i2 data of shape [2] takes 4 bytes, the file has 3");
}

TEST_CASE("npy keeps every dtype, and views by their values") {
  const Scratch folder;
  const std::string path = folder / "x.npy";
  for (DType dtype : {boolean, u8, i32, i64, f16, bf16, f32, f64}) {
    const Tensor x = random_reference({3, 4, 5}, 1, 0, 100).tensor(dtype, test_device());
    for (const Tensor& view : {x, x.transpose(0, 2), x.slice(1, 1, 4, 2), x.select(2, 3),
                               x.slice(0, 0, 1).expand({2, 4, 5}), x.slice(0, 0, 0)}) {
      save_npy(path, view);
      const Tensor back = load_npy(path);
      CHECK(back.shape() == view.shape());
      CHECK(Reference::of(back).values == Reference::of(view).values);
    }
  }
}

TEST_CASE("npy refuses what is no such file") {
  check_refused("", "is no .npy file");
  check_refused("PK\3\4 and so on", "is no .npy file");
  check_refused("\223NUMPY\4\0v\0"s, ".npy format 4 is unknown");
  check_refused("\223NUMPY\2\0\0\0\0\100"s, "a header of 1073741824 bytes is too long");
  check_refused("\223NUMPY\1\0v\0{"s, "truncated: 118 bytes wanted at 10, the file has 11");
  const std::string good = numpy_file(1, dictionary("<f4", "(2, 3)"), std::string(24, '\0'));
  check_refused(good.substr(0, 150), "f32 data of shape [2, 3] takes 24 bytes, the file has 22");
  check_refused(good + "x", "f32 data of shape [2, 3] takes 24 bytes, the file has 25");
  check_refused(numpy_file(1, dictionary(">f4", "(1,)"), "?\200\0\0"s),
                "big-endian data ('>f4') is not supported");
  check_refused(numpy_file(1, dictionary("|O", "(1,)"), ""), "data of type '|O' is not supported");
  check_refused(numpy_file(1, dictionary("<c8", "(1,)"), ""),
                "data of type '<c8' is not supported");
  check_refused(numpy_file(1, dictionary("|b1", "(1,)"), "\2"), "a boolean is neither 0 nor 1");
  check_refused(numpy_file(1, dictionary("<f8", "(4294967296, 4294967296)"), ""),
                "shape [4294967296, 4294967296] is too large");
  // An extent of 0 makes the rest no smaller.
  for (const std::string& order : {"False"s, "True"s})
    for (const std::string& shape : {"4611686018427387904, 0"s, "0, 4611686018427387904"s})
      check_refused(numpy_file(1, dictionary("|u1", "(" + shape + ")", order), ""),
                    "shape [" + shape + "] is too large");
}

TEST_CASE("npy refuses headers it does not understand") {
  for (const std::string& header :
       {"{}"s, "{'descr': '<f4', 'fortran_order': False, }"s, dictionary("<f4", "(-1,)"),
        dictionary("<f4", "(1, 1, 1, 1, 1, 1, 1, 1, 1)"), dictionary("<f4", "(1"),
        dictionary("<f4", "1"), dictionary("<f4", "(1,)", "None"), dictionary("<f4", "(1,)") + "x",
        "{'descr"s, "{'other': '<f4'}"s, "{'shape': (1,) 'descr': '<f4'}"s,
        dictionary("<f4", "(99999999999999999999,)")}) {
    const Scratch folder;
    const std::string path = folder / "x.npy";
    write_file(path, numpy_file(1, header, ""));
    CHECK_THROWS_AS(load_npy(path), IoError);
    try {
      load_npy(path);
    } catch (const IoError& error) {
      CHECK(std::string(error.what()).starts_with(path + ": not understood in the header at "));
    }
  }
}
