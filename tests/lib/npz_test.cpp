#include <bs/lib/check.h>
#include <bs/lib/memory.h>
#include <bs/lib/npy.h>
#include <bs/lib/npz.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <bs/tests/support/scratch.h>
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <zlib.h>

#include <algorithm>
#include <numeric>

using namespace bs;
using namespace bs::test;
using namespace std::string_literals;

namespace {

using Arrays = std::map<std::string, Tensor>;

// numpy.savez and numpy.savez_compressed of NumPy 2 wrote them: weights, [[0, 1, 2], [3, 4, 5]] in
// f32; n, -7 in i64; flags, 300 times False.
const std::string numpy_files[] = {BS_LIB_GOLDEN "/savez.npz",
                                   BS_LIB_GOLDEN "/savez_compressed.npz"};

Arrays samples() {
  Reference counting({2, 3}), seven(Shape{}), many({300});
  std::iota(counting.values.begin(), counting.values.end(), 0);
  seven[0] = -7;
  return {{"weights", counting.tensor(f32, test_device())},
          {"n", seven.tensor(i64, test_device())},
          {"flags", many.tensor(boolean, test_device())}};
}

void check_equal(const Arrays& a, const Arrays& b) {
  REQUIRE(a.size() == b.size());
  for (const auto& [key, tensor] : a) {
    const std::string name = key;
    CAPTURE(name);
    REQUIRE(b.contains(name));
    CHECK(b.at(name).dtype() == tensor.dtype());
    CHECK(same_bits(tensor, b.at(name)));
  }
}

void check_refused(const std::string& content, const std::string& reason) {
  const Scratch folder;
  const std::string path = folder / "x.npz";
  write_file(path, content);
  CHECK_THROWS_WITH_AS(load_npz(path), (path + ": " + reason).c_str(), IoError);
}

/// `text` with the bytes of `part` written over those at `at`.
std::string with(std::string text, size_t at, const std::string& part) {
  return text.replace(at, part.size(), part);
}

void put(std::string& to, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) to += static_cast<char>(value >> (8 * i) & 255);
}

/// An archive of an array of n zero bytes, deflated without ever holding them.
std::string bomb(int64_t n) {
  std::string part = npy_header(Tensor::empty({n}, u8)), packed;
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  const size_t size = part.size() + static_cast<size_t>(n);
  uLong sum = 0;
  packed.resize(size / 500 + 1000);
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  for (size_t left = size; left > 0; part.assign(std::min<size_t>(left, 1 << 16), '\0')) {
    sum = ::crc32(sum, reinterpret_cast<const Bytef*>(part.data()), static_cast<uInt>(part.size()));
    stream.next_in = reinterpret_cast<Bytef*>(part.data());
    stream.avail_in = static_cast<uInt>(part.size());
    left -= part.size();
    ::deflate(&stream, left > 0 ? Z_NO_FLUSH : Z_FINISH);
  }
  packed.resize(stream.total_out);
  ::deflateEnd(&stream);
  std::string shared;  // from the version to the lengths
  for (const int value : {20, 0, 8, 0, 33}) put(shared, static_cast<uint64_t>(value), 2);
  put(shared, sum, 4);
  put(shared, packed.size(), 4);
  put(shared, size, 4);
  put(shared, 5, 4);
  std::string file = "PK\3\4" + shared + "x.npy" + packed;
  const std::string central =
      "PK\1\2\24\0"s + shared + std::string(2 + 2 + 2 + 4 + 4, '\0') + "x.npy";
  std::string end = "PK\5\6\0\0\0\0\1\0\1\0"s;
  put(end, central.size(), 4);
  put(end, file.size(), 4);
  put(end, 0, 2);
  return file + central + end;
}

int64_t highest_memory() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} << 10;
}

}  // namespace

TEST_CASE("npz reads what NumPy wrote, compressed or not") {
  for (const std::string& path : numpy_files) {
    CAPTURE(path);
    check_equal(samples(), load_npz(path, test_device()));
  }
}

TEST_CASE("npz files come back, with the same bytes each time") {
  const Scratch folder;
  const std::string path = folder / "x.npz";
  Arrays arrays = samples();
  arrays["é"] = Reference({0, 4}).tensor(bf16, test_device());
  arrays["turned"] = random_reference({3, 5}, 1).tensor(f64, test_device()).transpose(0, 1);
  save_npz(path, arrays);
  check_equal(arrays, load_npz(path, test_device()));
  const std::string first = read_file(path);
  save_npz(path, arrays);
  CHECK(read_file(path) == first);
  save_npz(path, {});
  CHECK(load_npz(path).empty());
  CHECK(folder.files() == 1);
}

TEST_CASE("npz reads empty arrays of integers that have no dtype") {
  const Scratch folder;
  const std::string path = folder / "x.npz";
  for (const char* const descr : {"|i1", "<i2", "<u2", "<u4"}) {
    CAPTURE(descr);
    save_npz(path, {{"x", Reference({0, 3}).tensor(u8, test_device())}});
    std::string file = read_file(path);
    constexpr size_t begin = 35;  // behind the local header and the name
    const size_t central = file.find("PK\1\2"), at = file.find("|u1");
    REQUIRE(at < central);
    file.replace(at, 3, descr);
    std::string sum;
    put(sum,
        ::crc32(0, reinterpret_cast<const Bytef*>(&file[begin]),
                static_cast<uInt>(central - begin)),
        4);
    write_file(path, with(with(file, 14, sum), central + 16, sum));
    CHECK(load_npz(path, test_device()).at("x").shape() == Shape{0, 3});
  }
}

TEST_CASE("npz writes ZIP records") {
  const Scratch folder;
  const std::string path = folder / "x.npz";
  Reference one({1});
  one[0] = 255;
  save_npz(path, {{"x", one.tensor(u8, test_device())}});
  const std::string file = read_file(path);
  const std::string local = "PK\3\4\24\0\0\0\0\0\0\0\41\0"s;
  CHECK(file.starts_with(local));
  CHECK(file.substr(18, 12) == "\x81\0\0\0\x81\0\0\0\5\0\0\0"s);  // 129 bytes, a name of 5
  CHECK(file.substr(30, 5) == "x.npy");
  CHECK(file.substr(35, 6) == "\x93NUMPY");
  const std::string end = "PK\5\6\0\0\0\0\1\0\1\0\63\0\0\0\xa4\0\0\0\0\0"s;  // 51 bytes at 164
  CHECK(file.ends_with(end));
}

TEST_CASE("npz refuses files cut short anywhere") {
  for (const std::string& path : numpy_files) {
    const std::string whole = read_file(path);
    const Scratch folder;
    for (size_t bytes = 0; bytes < whole.size(); bytes += 7) {
      CAPTURE(bytes);
      write_file(folder / "x.npz", std::string_view(whole).substr(0, bytes));
      CHECK_THROWS_AS(load_npz(folder / "x.npz"), IoError);
    }
  }
}

TEST_CASE("npz never takes changed bytes for values") {
  const Arrays expected = samples();
  for (const std::string& path : numpy_files) {
    const std::string whole = read_file(path);
    const Scratch folder;
    for (size_t at = 0; at < whole.size(); ++at) {
      CAPTURE(at);
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
      write_file(folder / "x.npz", damaged);
      try {
        for (const auto& [name, tensor] : load_npz(folder / "x.npz"))
          if (expected.contains(name)) CHECK(same_bits(tensor, expected.at(name)));
      } catch (const IoError&) {  // dates and the like may change, nothing else
      }
    }
  }
}

TEST_CASE("npz says what is wrong") {
  const std::string plain = read_file(numpy_files[0]), packed = read_file(numpy_files[1]);
  const size_t central = plain.find("PK\1\2"), packed_central = packed.find("PK\1\2");
  check_refused("", "is no .npz file");
  check_refused("PK", "is no .npz file");
  check_refused(std::string(100, 'x'), "is no .npz file");
  check_refused(with(plain, central + 8, "\1"), "weights.npy: is encrypted");
  check_refused(with(plain, central + 10, "\14"), "weights.npy: compression method 12 is unknown");
  check_refused(with(plain, central + 16, "\0\0\0\0"s),
                "weights.npy: damaged: its checksum is wrong");
  check_refused(with(plain, central + 24, "\1\0\0\0"s),
                "weights.npy: damaged: 152 bytes cannot hold 1");
  check_refused(with(packed, packed_central + 24, "\xff\xff\xff\x7f"),
                "weights.npy: damaged: 85 bytes cannot hold 2147483647");
  check_refused(with(packed, packed_central + 24, "\1\0\0\0"s), "weights.npy: is no .npy file");
  check_refused(with(plain, central + 20, "\xf0\xff\xff\xff"),
                "a damaged .npz file: entries overlap");
  check_refused(with(plain, central + 42, "\1\0\0\0"s), "weights.npy: no entry begins at byte 1");
  const Scratch folder;
  CHECK_THROWS_WITH_AS(save_npz(folder / "x.npz", {{"a", Tensor()}}),
                       "save_npz: 'a' is an undefined tensor", Error);
  CHECK_THROWS_AS(save_npz(folder / "x.npz", {{"", Reference({1}).tensor(f32, test_device())}}),
                  Error);
  CHECK_THROWS_AS(save_npz(folder / "x.npz", {{"\xff", Reference({1}).tensor(f32, test_device())}}),
                  Error);
  CHECK(folder.files() == 0);
}

TEST_CASE("npz: a bomb takes no more than tensors may have") {
  const Scratch folder;
  const std::string path = folder / "bomb.npz";
  constexpr int64_t little = int64_t{4} << 20, much = int64_t{512} << 20;
  write_file(path, bomb(little));
  const Tensor zeros = load_npz(path).at("x");
  CHECK(zeros.shape() == Shape{little});
  CHECK(std::count(zeros.data<uint8_t>(), zeros.data<uint8_t>() + little, 0) == little);

  write_file(path, bomb(much));
  CHECK(read_file(path).size() < much / 900);
  const int64_t before = highest_memory();
  set_memory_limit(Device::cpu(), int64_t{32} << 20);
  CHECK_THROWS_AS(load_npz(path), OutOfMemory);
  set_memory_limit(Device::cpu(), 0);
  CHECK(highest_memory() - before < much / 4);
}
