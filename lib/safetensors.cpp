#include <bs/lib/safetensors.h>

#include <bs/lib/file.h>
#include <bs/lib/json.h>
#include <bs/lib/out_of_memory.h>

#include <algorithm>
#include <bit>
#include <new>
#include <vector>

namespace bs {

namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are in host order");

constexpr uint64_t longest_header = 100'000'000;  // the limit of the reference implementation
constexpr size_t most_values = 1 << 20;           // of one entry, and texts of the metadata
constexpr const char* metadata_name = "__metadata__";

struct Name {
  DType dtype;
  const char* text;
};
/// In the order in which the reference implementation lays out data: all are aligned so.
constexpr Name names[] = {{DType::i64, "I64"}, {DType::f64, "F64"},     {DType::f32, "F32"},
                          {DType::i32, "I32"}, {DType::bf16, "BF16"},   {DType::f16, "F16"},
                          {DType::u8, "U8"},   {DType::boolean, "BOOL"}};

size_t place_of(DType dtype) {
  size_t place = 0;
  while (names[place].dtype != dtype) ++place;
  return place;
}

/// One tensor of a file being read; `begin` and `end` count from the start of the data.
struct Entry {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  int64_t begin = 0, end = 0;
};

DType dtype_of_name(const std::string& text) {
  for (const Name& n : names)
    if (text == n.text) return n.dtype;
  BS_THROW(IoError, "dtype {} is not supported", text);
}

const Json& member(const Json& object, const char* name) {
  const Json* found = object.find(name);
  if (!found) BS_THROW(IoError, "{} is missing", name);
  return *found;
}

Entry read_entry(const std::string& name, const Json& json) {
  Entry entry{.name = name, .dtype = dtype_of_name(member(json, "dtype").string()), .shape = {}};
  for (const Json& extent : member(json, "shape").array()) {
    const int64_t n = extent.integer();
    if (n < 0) BS_THROW(IoError, "negative extent {}", n);
    if (entry.shape.rank() == Shape::max_rank)
      BS_THROW(IoError, "more than {} axes", Shape::max_rank);
    entry.shape.push_back(n);
  }
  const std::optional<int64_t> bytes = tensor_bytes(entry.shape, size_of(entry.dtype));
  if (!bytes) BS_THROW(IoError, "the shape is too large");
  const Json::Array& offsets = member(json, "data_offsets").array();
  if (json.object().size() != 3) BS_THROW(IoError, "a member is unknown");
  if (offsets.size() != 2) BS_THROW(IoError, "data_offsets are {} numbers", offsets.size());
  entry.begin = offsets[0].integer();
  entry.end = offsets[1].integer();
  if (entry.begin < 0 || entry.end < entry.begin || entry.end - entry.begin != *bytes)
    BS_THROW(IoError, "{} of shape {} takes {} bytes, not [{}, {})", entry.dtype, entry.shape,
             *bytes, entry.begin, entry.end);
  return entry;
}

/// The tensors in the order of their data, which must be covered exactly.
std::vector<Entry> read_entries(const std::string& header, int64_t data_bytes,
                                Safetensors& content) {
  std::vector<Entry> entries;
  Json::parse_members(header, most_values, [&](const std::string& name, const Json& value) {
    try {
      if (name == metadata_name)
        for (const auto& [key, text] : value.object()) content.metadata[key] = text.string();
      else
        entries.push_back(read_entry(name, value));
    } catch (const IoError& error) {
      BS_THROW(IoError, "{}: {}", name, error.what());
    }
  });
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  int64_t covered = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != covered)
      BS_THROW(IoError, "{}: begins at {}, the data before it ends at {}", entry.name, entry.begin,
               covered);
    covered = entry.end;
  }
  if (covered != data_bytes)
    BS_THROW(IoError, "the tensors take {} bytes, the file has {}", covered, data_bytes);
  return entries;
}

}  // namespace

void save_safetensors(const std::string& path, const Safetensors& content) try {
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const auto& [name, tensor] : content.tensors) {
    BS_CHECK(tensor.defined(), "safetensors: tensor {} is undefined", name);
    BS_CHECK(name != metadata_name, "safetensors: no tensor may be named {}", name);
    BS_CHECK(is_utf8(name), "safetensors: the name of a tensor {} {} is not UTF-8", tensor.dtype(),
             tensor.shape());
    tensors.emplace_back(name, tensor);
  }
  BS_CHECK(content.metadata.size() < most_values, "safetensors: metadata of {} entries",
           content.metadata.size());
  for (const auto& [key, value] : content.metadata) {
    BS_CHECK(is_utf8(key), "safetensors: a key of the metadata is not UTF-8");
    BS_CHECK(is_utf8(value), "safetensors: the metadata's {} is not UTF-8", key);
  }
  std::stable_sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return place_of(a.second.dtype()) < place_of(b.second.dtype());
  });
  Json::Object header;
  if (!content.metadata.empty())
    header.emplace_back(metadata_name,
                        Json::Object(content.metadata.begin(), content.metadata.end()));
  int64_t at = 0;
  for (const auto& [name, tensor] : tensors) {
    const int64_t end = at + static_cast<int64_t>(tensor.bytes());
    Json::Object entry;  // member by member: GCC 12 destroys lists that throw halfway wrongly
    entry.emplace_back("dtype", names[place_of(tensor.dtype())].text);
    entry.emplace_back("shape", Json::Array(tensor.shape().begin(), tensor.shape().end()));
    entry.emplace_back("data_offsets", Json::Array{at, end});
    header.emplace_back(name, std::move(entry));
    at = end;
  }
  std::string text = Json(std::move(header)).dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  BS_CHECK(length <= longest_header, "safetensors: a header of {} bytes is too long", length);

  AtomicFile file(path);
  file.write(&length, sizeof length);
  file.write(text.data(), text.size());
  for (const auto& [name, tensor] : tensors) write_values(file, tensor);
  file.commit();
} catch (const std::bad_alloc&) {
  out_of_own_memory("save_safetensors", path);
}

namespace {

/// Reads up to the data, and leaves the metadata in `content`.
std::vector<Entry> read_header(InputFile& file, Safetensors& content) {
  const std::string& path = file.path();
  uint64_t length = 0;
  file.read(&length, sizeof length);
  if (length > longest_header)
    BS_THROW(IoError, "{}: is no safetensors file: a header of {} bytes is too long", path, length);
  if (static_cast<uint64_t>(file.left()) >= length) {  // else it is truncated, see below
    if (length == 0 || file.read_text(1) != "{")
      BS_THROW(IoError, "{}: is no safetensors file", path);
    file.seek(sizeof length);
  }
  const std::string text = file.read_text(static_cast<size_t>(length));
  try {
    return read_entries(text, file.left(), content);
  } catch (const IoError& error) {
    BS_THROW(IoError, "{}: {}", path, error.what());
  }
}

}  // namespace

Safetensors load_safetensors(const std::string& path, Device device) try {
  InputFile file(path);
  Safetensors content;
  for (const Entry& entry : read_header(file, content)) {
    const Tensor host = Tensor::empty(entry.shape, entry.dtype);
    read_values(file, host);
    content.tensors.emplace(entry.name, host.to(device));
  }
  return content;
} catch (const std::bad_alloc&) {
  out_of_own_memory("load_safetensors", path);
}

Safetensors map_safetensors(const std::string& path) try {
  InputFile file(path);
  Safetensors content;
  const std::vector<Entry> entries = read_header(file, content);
  const int64_t start = file.size() - file.left();
  const std::shared_ptr<std::byte> map = file.map();
  for (const Entry& entry : entries) {
    const int64_t at = start + entry.begin;
    const bool aligned = at % static_cast<int64_t>(size_of(entry.dtype)) == 0;
    Tensor host;
    if (entry.end == entry.begin || entry.dtype == boolean || !aligned) {
      host = Tensor::empty(entry.shape, entry.dtype);
      file.seek(at);
      read_values(file, host);
    } else {
      host = Tensor::from_blob(map.get() + at, entry.shape, entry.dtype, Device::cpu(),
                               [map] { /* keeps it until here */ });
    }
    content.tensors.emplace(entry.name, host);
  }
  return content;
} catch (const std::bad_alloc&) {
  out_of_own_memory("map_safetensors", path);
}

}  // namespace bs
