// Readers of files, and memory: what there is none of is reported with the file's name, and none is
// taken for sizes that a header only claims.
#include <bs/kernels/fill.h>
#include <bs/lib/npy.h>
#include <bs/lib/npz.h>
#include <bs/lib/safetensors.h>
#include <bs/nn/checkpoint.h>
#include <bs/nn/data/manifest.h>
#include <bs/nn/data/text_dataset.h>
#include <bs/tests/faults/memory_faults.h>
#include <bs/tests/support/scratch.h>
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

using namespace bs;
using namespace bs::test;

TEST_CASE("faults: a reader that lacks memory says so, and names the file") {
  const Scratch folder;
  const Tensor x = ones({4}, i64);
  save_npy(folder / "npy", x);
  save_npz(folder / "npz", {{"x", x}});
  save_safetensors(folder / "safetensors", {.tensors = {{"x", x}}, .metadata = {{"key", "value"}}});
  nn::save_checkpoint(folder / "checkpoint", {.step = 1, .metadata = {{"key", "value"}}});
  write_file(folder / "text", "some words");
  write_file(folder / "manifest", "{\"path\": \"a.wav\", \"text\": \"some words\"}\n");
  const auto check = [&](const char* name, auto&& read) {
    CAPTURE(name);
    const std::string path = folder / name;
    const int64_t points = allocations_of([&] { read(path); });
    CHECK(points > 0);
    int64_t named = 0;
    for (int64_t point = 0; point < points; ++point) {
      CAPTURE(point);
      std::string text;
      {
        const MemoryFault fault(point);
        try {
          read(path);
        } catch (const OutOfMemory& error) {  // and nothing else
          text = error.what();
        }
      }
      CHECK(!text.empty());
      named += text.find(path) != std::string::npos;
    }
    CHECK(named >= points - 1);  // that of a tensor names its size instead
  };
  check("npy", [](const std::string& path) { load_npy(path); });
  check("npz", [](const std::string& path) { load_npz(path); });
  check("safetensors", [](const std::string& path) { load_safetensors(path); });
  check("safetensors", [](const std::string& path) { map_safetensors(path); });
  check("checkpoint", [](const std::string& path) { nn::Checkpoint{path}; });
  check("text", [](const std::string& path) { data::TextDataset::read(path); });
  check("manifest", [](const std::string& path) { data::read_manifest(path); });
}

TEST_CASE("faults: no reader takes memory for what a header only claims") {
  const Scratch folder;
  const std::string path = folder / "hostile";
  const auto after_size = [](uint64_t size, const std::string& text) {
    std::string bytes(sizeof size + text.size(), '\0');
    std::memcpy(bytes.data(), &size, sizeof size);
    text.copy(bytes.data() + sizeof size, text.size());
    return bytes;
  };
  const auto npy = [&](const std::string& shape) {
    std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + shape + ",), }";
    header.resize(117, ' ');
    std::string bytes("\x93NUMPY\x01\0\x76\0", 10);
    return bytes.append(header).append("\n");
  };
  const std::string entry =
      R"({"x":{"dtype":"F32","shape":[25000000],"data_offsets":[0,100000000]}})";
  struct Hostile {
    const char* what;
    std::string bytes;
    int64_t size;  ///< of the file; zeros follow the bytes, which a disk keeps in no room
  };
  const std::vector<Hostile> files{
      {"a header of 100 MB that is not there", after_size(100'000'000, "{"), 9},
      {"a header of 100 MB of zeros", after_size(100'000'000, ""), 100'000'008},
      {"a tensor of 100 MB that is not there", after_size(entry.size(), entry), 100},
      {"an array of 100 MB that is not there", npy("25000000"), 128},
      {"an array whose size overflows", npy("4611686018427387904, 4"), 128},
  };
  for (const Hostile& file : files) {
    CAPTURE(file.what);
    write_file(path, file.bytes);
    REQUIRE(::truncate(path.c_str(), file.size) == 0);
    const auto refused = [&](auto&& read) {
      const MemoryFault none;
      CHECK_THROWS_AS(read(), IoError);
      CHECK(none.largest() < 100'000);
    };
    refused([&] { load_safetensors(path); });
    refused([&] { map_safetensors(path); });
    refused([&] { nn::Checkpoint{path}; });
    refused([&] { load_npy(path); });
    refused([&] { load_npz(path); });
  }
}
