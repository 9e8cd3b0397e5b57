#include <bs/lib/npy.h>

#include <bs/lib/host_view.h>
#include <bs/lib/out_of_memory.h>

#include <bit>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <new>
#include <string_view>
#include <vector>

namespace bs {

namespace {

static_assert(std::endian::native == std::endian::little, ".npy files are written in host order");

constexpr std::string_view magic = "\x93NUMPY";
constexpr size_t longest_header = 1 << 16;  // the largest a format 1 header can be; ours have 64

struct Descr {
  DType dtype;
  std::string_view text;
};
constexpr Descr descrs[] = {{DType::boolean, "|b1"}, {DType::u8, "|u1"},  {DType::i32, "<i4"},
                            {DType::i64, "<i8"},     {DType::f16, "<f2"}, {DType::bf16, "<V2"},
                            {DType::f32, "<f4"},     {DType::f64, "<f8"}, {DType::bf16, "|V2"}};

/// Integers that have no DType are read as the next wider one that holds all their values.
struct Narrow {
  std::string_view text;
  size_t size;
  DType dtype;
  void (*widen)(const std::byte* from, const Tensor& to);
};

template <class From, class To>
void widen(const std::byte* from, const Tensor& to) {
  To* values = to.data<To>();
  for (int64_t i = 0; i < to.numel(); ++i) {
    From value;
    std::memcpy(&value, from + static_cast<size_t>(i) * sizeof value, sizeof value);
    values[i] = value;  // NOLINT(bugprone-signed-char-misuse): a byte here is a number with a sign
  }
}

constexpr Narrow narrows[] = {{"|i1", 1, DType::i32, widen<int8_t, int32_t>},
                              {"<i2", 2, DType::i32, widen<int16_t, int32_t>},
                              {"<u2", 2, DType::i32, widen<uint16_t, int32_t>},
                              {"<u4", 4, DType::i64, widen<uint32_t, int64_t>}};

const Narrow* narrow_of(const std::string& descr) {
  for (const Narrow& n : narrows)
    if (n.text == descr) return &n;
  return nullptr;
}

std::string_view descr_of(DType dtype) {
  for (const Descr& d : descrs)
    if (d.dtype == dtype) return d.text;
  BS_THROW(Error, "npy: dtype {} has no descr", dtype);
}

/// What the header's dictionary says.
struct Header {
  std::string descr;
  bool fortran_order = false;
  Shape shape;
};

/// Reads the Python literal that a header is: a dictionary of a string, a boolean and a tuple.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  Header parse() {
    Header header;
    unsigned seen = 0;
    expect('{');
    while (!take('}')) {
      const std::string key = quoted();
      expect(':');
      if (key == "descr") {
        header.descr = quoted();
        seen |= 1;
      } else if (key == "fortran_order") {
        header.fortran_order = boolean();
        seen |= 2;
      } else if (key == "shape") {
        header.shape = tuple();
        seen |= 4;
      } else {
        fail();
      }
      if (!take(',') && peek() != '}') fail();
    }
    skip_space();
    if (seen != 7 || at_ != text_.size()) fail();
    return header;
  }

 private:
  [[noreturn]] void fail() const {
    BS_THROW(IoError, "{}: not understood in the header at {}: {}", path_, at_, text_);
  }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  char peek() {
    skip_space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail();
  }
  std::string quoted() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') fail();
    const size_t end = text_.find(quote, at_ + 1);
    if (end == text_.npos) fail();
    std::string value(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return value;
  }
  bool boolean() {
    skip_space();
    for (const std::string_view name : {"False", "True"})
      if (text_.substr(at_, name.size()) == name) {
        at_ += name.size();
        return name == "True";
      }
    fail();
  }
  Shape tuple() {
    Shape shape;
    expect('(');
    while (!take(')')) {
      skip_space();
      int64_t extent = 0;
      const char* last = text_.data() + text_.size();
      const auto [end, error] = std::from_chars(text_.data() + at_, last, extent);
      if (error != std::errc() || extent < 0 || shape.rank() == Shape::max_rank) fail();
      shape.push_back(extent);
      at_ = static_cast<size_t>(end - text_.data());
      take('L');  // Python 2 wrote long integers so
      if (!take(',') && peek() != ')') fail();
    }
    return shape;
  }

  std::string_view text_;
  const std::string& path_;
  size_t at_ = 0;
};

DType dtype_of_descr(const std::string& descr, const std::string& path) {
  for (const Descr& d : descrs)
    if (d.text == descr) return d.dtype;
  if (descr.starts_with('>'))
    BS_THROW(IoError, "{}: big-endian data ('{}') is not supported", path, descr);
  BS_THROW(IoError, "{}: data of type '{}' is not supported", path, descr);
}

/// Product of the extents times the size of an element.
int64_t checked_bytes(const Header& header, size_t element, const std::string& path) {
  const std::optional<int64_t> bytes = tensor_bytes(header.shape, element);
  if (!bytes) BS_THROW(IoError, "{}: shape {} is too large", path, header.shape);
  return *bytes;
}

Header read_header(Input& file) {
  const std::string& path = file.path();
  if (file.size() < 10) BS_THROW(IoError, "{}: is no .npy file", path);
  const std::string start = file.read_text(8);
  if (!start.starts_with(magic)) BS_THROW(IoError, "{}: is no .npy file", path);
  const int major = static_cast<unsigned char>(start[6]);
  if (major < 1 || major > 3) BS_THROW(IoError, "{}: .npy format {} is unknown", path, major);
  uint32_t length = 0;
  file.read(&length, major == 1 ? 2 : 4);
  if (length > longest_header)
    BS_THROW(IoError, "{}: a header of {} bytes is too long", path, length);
  const std::string text = file.read_text(length);
  return HeaderParser(text, path).parse();
}

}  // namespace

std::string npy_header(const Tensor& tensor) {
  std::string shape;
  for (int64_t extent : tensor.shape()) shape += std::to_string(extent) + ", ";
  if (tensor.rank() > 1) shape.resize(shape.size() - 2);
  if (tensor.rank() == 1) shape.pop_back();
  std::string header = format("{'descr': '{}', 'fortran_order': False, 'shape': ({}), }",
                              descr_of(tensor.dtype()), shape);
  // The data begins at a multiple of 64; the header ends with a new line.
  header.resize((header.size() + 11 + 63) / 64 * 64 - 11, ' ');
  header += '\n';
  const auto length = static_cast<uint16_t>(header.size());
  std::string start(magic);
  start += {'\1', '\0', static_cast<char>(length & 0xff), static_cast<char>(length >> 8)};

  return start + header;
}

void save_npy(const std::string& path, const Tensor& tensor) try {
  BS_CHECK(tensor.defined(), "save_npy: the tensor for {} is undefined", path);
  const std::string header = npy_header(tensor);
  AtomicFile file(path);
  file.write(header.data(), header.size());
  write_values(file, tensor);
  file.commit();
} catch (const std::bad_alloc&) {
  out_of_own_memory("save_npy", path);
}

Tensor load_npy(const std::string& path, Device device) try {
  InputFile file(path);
  return load_npy(file, device);
} catch (const std::bad_alloc&) {
  out_of_own_memory("load_npy", path);
}

Tensor load_npy(Input& file, Device device) try {
  const std::string& path = file.path();
  const Header header = read_header(file);
  const Narrow* narrow = narrow_of(header.descr);
  const DType dtype = narrow != nullptr ? narrow->dtype : dtype_of_descr(header.descr, path);
  const int64_t bytes =
      checked_bytes(header, narrow != nullptr ? narrow->size : size_of(dtype), path);
  if (bytes != file.left())
    BS_THROW(IoError, "{}: {} data of shape {} takes {} bytes, the file has {}", path,
             narrow != nullptr ? header.descr : to_string(dtype), header.shape, bytes, file.left());
  Shape stored = header.shape;
  Dims axes = stored;
  const int rank = stored.rank();
  for (int i = 0; i < rank; ++i) {
    axes[i] = header.fortran_order ? rank - 1 - i : i;
    stored[i] = header.shape[static_cast<int>(axes[i])];
  }
  const Tensor host = Tensor::empty(stored, dtype);
  if (narrow == nullptr) {
    read_values(file, host);
  } else {
    std::vector<std::byte> values(static_cast<size_t>(bytes));
    file.read(values.data(), values.size());
    narrow->widen(values.data(), host);
  }
  return host_copy(host.permute(axes)).to(device);
} catch (const std::bad_alloc&) {
  out_of_own_memory("load_npy", file.path());
}

}  // namespace bs
