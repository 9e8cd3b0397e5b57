#include <bs/lib/npz.h>
#include <bs/tests/fuzz/harness.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>

using namespace bs;

namespace {

/// The archive with the right checksums of entries that are stored as they are: chance would not
/// find one, and nothing would be read that has changed.
std::string with_checksums(std::string_view bytes) {
  constexpr std::string_view mark = "PK\1\2";
  constexpr size_t header = 46, method = 10, crc = 16, packed = 20, offset = 42, local_names = 26;
  std::string file(bytes);
  const auto number = [&](auto value, size_t at) {
    std::memcpy(&value, file.data() + at, sizeof value);
    return value;
  };
  for (size_t at = 0; (at = file.find(mark, at)) != file.npos; ++at) {
    if (file.size() - at < header || number(uint16_t{}, at + method) != 0) continue;
    const size_t local = number(uint32_t{}, at + offset);
    if (local > file.size() || file.size() - local < 30) continue;
    const size_t begin = local + 30 + number(uint16_t{}, local + local_names) +
                         number(uint16_t{}, local + local_names + 2);
    const size_t size = number(uint32_t{}, at + packed);
    if (begin > file.size() || file.size() - begin < size) continue;
    const auto sum = static_cast<uint32_t>(
        ::crc32(0, reinterpret_cast<const Bytef*>(file.data()) + begin, static_cast<uInt>(size)));
    std::memcpy(file.data() + at + crc, &sum, sizeof sum);
  }
  return file;
}

}  // namespace

BS_HARNESS(npz) {
  const std::string path = fuzz::file_of("input", with_checksums(bytes));
  std::map<std::string, Tensor> first;
  if (!fuzz::takes([&] { first = load_npz(path); })) return;
  size_t held = 0;
  for (const auto& [name, tensor] : first) held += tensor.bytes();
  constexpr size_t best_ratio = 1032, widest = 4;  // of deflate, and of a byte that becomes an i32
  fuzz::require(held <= best_ratio * widest * bytes.size(), "no array is made of nothing");
  // NumPy allows a name without letters, for which there is no file of ours.
  if (std::ranges::any_of(first, [](const auto& entry) { return entry.first.empty(); })) return;
  const std::string copy = fuzz::path_of("copy");
  save_npz(copy, first);
  const auto again = load_npz(copy);
  fuzz::require(again.size() == first.size(), "all arrays are there");
  for (const auto& [name, tensor] : first)
    fuzz::require(again.contains(name) && fuzz::same(tensor, again.at(name)),
                  "arrays are what they were");
}
