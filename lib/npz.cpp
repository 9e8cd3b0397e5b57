#include <bs/lib/npz.h>

#include <bs/lib/host_view.h>
#include <bs/lib/json.h>
#include <bs/lib/npy.h>
#include <bs/lib/out_of_memory.h>
#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <new>
#include <vector>

namespace bs {

namespace {

// The records of a ZIP archive, by PKWARE's APPNOTE 6.3; numbers are little-endian.
static_assert(std::endian::native == std::endian::little);

constexpr uint32_t local_mark = 0x04034b50, central_mark = 0x02014b50, end_mark = 0x06054b50,
                   end64_mark = 0x06064b50, locator64_mark = 0x07064b50;
constexpr size_t local_size = 30, end_size = 22, end64_size = 56, locator64_size = 20;
constexpr uint16_t stored = 0, deflated = 8;  // methods of compression
constexpr uint16_t encrypted_flag = 1, utf8_flag = 1 << 11;
constexpr uint16_t wide_tag = 1;  // the extra field with 64-bit sizes, of an entry that needs them
constexpr uint32_t wide = std::numeric_limits<uint32_t>::max();  // stands for "see that field"
constexpr uint16_t new_years_day_1980 = 33;                      // the first date of the format
constexpr uint64_t best_ratio = 1032;                            // of deflate
constexpr std::string_view suffix = ".npy";

struct Entry {
  std::string name;
  uint16_t flags = 0;
  uint16_t method = stored;
  uint32_t crc = 0;
  uint64_t packed = 0;  // bytes in the archive
  uint64_t size = 0;    // and once unpacked
  uint64_t offset = 0;  // of the local header
};

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// Takes numbers from the front of a record.
class Record {
 public:
  Record(std::string_view bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  template <class T>
  T take() {
    T value;
    std::memcpy(&value, text(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view text(size_t bytes) {
    if (bytes > bytes_.size())
      BS_THROW(IoError, "{}: a damaged .npz file: a record ends early", path_);
    const std::string_view front = bytes_.substr(0, bytes);
    bytes_.remove_prefix(bytes);
    return front;
  }
  bool empty() const { return bytes_.empty(); }

 private:
  std::string_view bytes_;
  const std::string& path_;
};

/// CRC-32 of more bytes.
uint32_t checksum(uint32_t crc, const void* data, size_t bytes) {
  if (bytes == 0) return crc;  // zlib takes null, which empty memory may be at, for a fresh start
  return static_cast<uint32_t>(::crc32_z(crc, static_cast<const Bytef*>(data), bytes));
}

/// What a local and a central header have in common, from the version to the lengths.
void put_shared(std::string& out, const Entry& e, size_t extra) {
  put<uint16_t>(out, e.size >= wide || e.offset >= wide ? 45 : 20);  // the version that reads it
  put(out, e.flags);
  put(out, e.method);
  put<uint16_t>(out, 0);  // midnight
  put(out, new_years_day_1980);
  put(out, e.crc);
  put(out, static_cast<uint32_t>(std::min<uint64_t>(e.packed, wide)));
  put(out, static_cast<uint32_t>(std::min<uint64_t>(e.size, wide)));
  put(out, static_cast<uint16_t>(e.name.size()));
  put(out, static_cast<uint16_t>(extra));
}

std::string local_header(const Entry& e) {
  std::string extra;
  if (e.size >= wide) {
    put(extra, wide_tag);
    put<uint16_t>(extra, 16);
    put(extra, e.size);
    put(extra, e.packed);
  }
  std::string out;
  put(out, local_mark);
  put_shared(out, e, extra.size());
  return out + e.name + extra;
}

std::string central_header(const Entry& e) {
  std::string sizes;
  if (e.size >= wide) {
    put(sizes, e.size);
    put(sizes, e.packed);
  }
  if (e.offset >= wide) put(sizes, e.offset);
  std::string extra;
  if (!sizes.empty()) {
    put(extra, wide_tag);
    put(extra, static_cast<uint16_t>(sizes.size()));
    extra += sizes;
  }
  std::string out;
  put(out, central_mark);
  put<uint16_t>(out, 3 << 8 | 45);  // made on Unix
  put_shared(out, e, extra.size());
  put<uint16_t>(out, 0);            // no comment
  put<uint16_t>(out, 0);            // the first disk
  put<uint16_t>(out, 0);            // no text
  put<uint32_t>(out, 0600u << 16);  // a file's permissions
  put(out, static_cast<uint32_t>(std::min<uint64_t>(e.offset, wide)));
  return out + e.name + extra;
}

/// What comes behind the headers of `count` entries, which begin at `start` and take `bytes`.
std::string end_records(uint64_t count, uint64_t start, uint64_t bytes) {
  std::string out;
  constexpr uint16_t many = std::numeric_limits<uint16_t>::max();
  if (count >= many || start >= wide || bytes >= wide) {
    put(out, end64_mark);
    put<uint64_t>(out, end64_size - 12);  // of what follows
    put<uint16_t>(out, 3 << 8 | 45);
    put<uint16_t>(out, 45);
    put<uint32_t>(out, 0);
    put<uint32_t>(out, 0);
    put(out, count);
    put(out, count);
    put(out, bytes);
    put(out, start);
    put(out, locator64_mark);
    put<uint32_t>(out, 0);
    put(out, start + bytes);
    put<uint32_t>(out, 1);  // disk in all
  }
  put(out, end_mark);
  put<uint32_t>(out, 0);
  const auto short_count = static_cast<uint16_t>(std::min<uint64_t>(count, many));
  put(out, short_count);
  put(out, short_count);
  put(out, static_cast<uint32_t>(std::min<uint64_t>(bytes, wide)));
  put(out, static_cast<uint32_t>(std::min<uint64_t>(start, wide)));
  put<uint16_t>(out, 0);
  return out;
}

/// Where the central headers lie, and how many there are.
struct Directory {
  uint64_t start = 0, bytes = 0, count = 0;
};

/// Goes to `position`, from where on `bytes` must be there.
void seek_to(InputFile& file, uint64_t position, uint64_t bytes) {
  const auto size = static_cast<uint64_t>(file.size());
  if (position > size || bytes > size - position)
    BS_THROW(IoError, "{}: a damaged .npz file: {} bytes wanted at {}, it has {}", file.path(),
             bytes, position, size);
  file.seek(static_cast<int64_t>(position));
}

std::string text_at(InputFile& file, uint64_t position, uint64_t bytes) {
  seek_to(file, position, bytes);
  return file.read_text(bytes);
}

Directory find_directory(InputFile& file) {
  const std::string& path = file.path();
  const auto size = static_cast<uint64_t>(file.size());
  constexpr uint64_t longest_comment = 0xffff;
  const uint64_t looked_at = std::min<uint64_t>(size, end_size + longest_comment);
  const std::string tail = text_at(file, size - looked_at, looked_at);
  std::string mark;
  put(mark, end_mark);
  const size_t at = size < end_size ? tail.npos : tail.rfind(mark, tail.size() - end_size);
  if (at == tail.npos) BS_THROW(IoError, "{}: is no .npz file", path);
  Record end(std::string_view(tail).substr(at), path);
  end.text(10);  // the mark, disks and the count on this disk
  Directory d;
  d.count = end.take<uint16_t>();
  d.bytes = end.take<uint32_t>();
  d.start = end.take<uint32_t>();

  const uint64_t end_at = size - looked_at + at;
  if (end_at < locator64_size) return d;
  const std::string locator_text = text_at(file, end_at - locator64_size, locator64_size);
  Record locator(locator_text, path);
  if (locator.take<uint32_t>() != locator64_mark) return d;
  locator.take<uint32_t>();
  const std::string wide_text = text_at(file, locator.take<uint64_t>(), end64_size);
  Record wide_end(wide_text, path);
  if (wide_end.take<uint32_t>() != end64_mark)
    BS_THROW(IoError, "{}: a damaged .npz file: no end record", path);
  wide_end.text(28);
  d.count = wide_end.take<uint64_t>();
  d.bytes = wide_end.take<uint64_t>();
  d.start = wide_end.take<uint64_t>();
  return d;
}

/// Takes the 64-bit sizes that the extra fields hold, of those that are wide, in this order.
void take_wide(Entry& e, std::string_view extra, const std::string& path) {
  Record fields(extra, path);
  while (!fields.empty()) {
    const auto tag = fields.take<uint16_t>();
    Record field(fields.text(fields.take<uint16_t>()), path);
    if (tag != wide_tag) continue;
    for (uint64_t* size : {&e.size, &e.packed, &e.offset})
      if (*size == wide) *size = field.take<uint64_t>();
  }
}

std::vector<Entry> read_directory(InputFile& file) {
  const std::string& path = file.path();
  const Directory d = find_directory(file);
  const std::string text = text_at(file, d.start, d.bytes);
  Record records(text, path);
  std::vector<Entry> entries;
  auto left = static_cast<uint64_t>(file.size());
  for (uint64_t i = 0; i < d.count; ++i) {
    if (records.take<uint32_t>() != central_mark)
      BS_THROW(IoError, "{}: a damaged .npz file: no header of entry {}", path, i);
    records.text(4);  // versions
    Entry e;
    e.flags = records.take<uint16_t>();
    e.method = records.take<uint16_t>();
    records.text(4);  // date and time
    e.crc = records.take<uint32_t>();
    e.packed = records.take<uint32_t>();
    e.size = records.take<uint32_t>();
    const auto name = records.take<uint16_t>(), extra = records.take<uint16_t>(),
               comment = records.take<uint16_t>();
    records.text(8);  // disk and attributes
    e.offset = records.take<uint32_t>();
    e.name = records.text(name);
    take_wide(e, records.text(extra), path);
    if (e.packed > left) BS_THROW(IoError, "{}: a damaged .npz file: entries overlap", path);
    left -= e.packed;
    records.text(comment);
    entries.push_back(std::move(e));
  }
  return entries;
}

/// The bytes of an entry, unpacked as they are read. Only a piece of the file is held meanwhile:
/// what an entry unpacks to is memory of tensors, which memory limits count.
class EntryInput final : public Input {
 public:
  EntryInput(InputFile& file, const Entry& entry);
  ~EntryInput() override { ::inflateEnd(&stream_); }
  /// To be called when all is read: throws unless that was all, with the right checksum.
  void verify();

 private:
  void fetch(void* data, size_t bytes) override;
  void inflate_on();
  [[noreturn]] void fail() const {
    BS_THROW(IoError, "{}: damaged: it does not unpack to {} bytes", path(), entry_.size);
  }
  InputFile& file_;
  Entry entry_;
  uint64_t packed_left_;
  uint32_t crc_ = 0;
  bool ended_ = false;  ///< whether the compressed stream is at its end
  z_stream stream_{};
  std::vector<Bytef> piece_;
};

EntryInput::EntryInput(InputFile& file, const Entry& e)
    : Input(file.path() + ": " + e.name), file_(file), entry_(e), packed_left_(e.packed) {
  if ((e.flags & encrypted_flag) != 0) BS_THROW(IoError, "{}: is encrypted", path());
  if (e.method != stored && e.method != deflated)
    BS_THROW(IoError, "{}: compression method {} is unknown", path(), e.method);
  const std::string header = text_at(file, e.offset, local_size);
  Record local(header, path());
  if (local.take<uint32_t>() != local_mark)
    BS_THROW(IoError, "{}: no entry begins at byte {}", path(), e.offset);
  local.text(22);
  const uint64_t names = uint64_t{local.take<uint16_t>()} + local.take<uint16_t>();
  seek_to(file, e.offset + local_size + names, e.packed);
  if (e.method == stored ? e.size != e.packed : e.size / best_ratio > e.packed)
    BS_THROW(IoError, "{}: damaged: {} bytes cannot hold {}", path(), e.packed, e.size);
  set_size(static_cast<int64_t>(e.size));  // a file's size times the ratio: it fits
  if (e.method == stored) return;
  piece_.resize(std::min<uint64_t>(e.packed, 64 << 10));
  if (::inflateInit2(&stream_, -MAX_WBITS) != Z_OK) throw std::bad_alloc();
}

void EntryInput::inflate_on() {
  if (stream_.avail_in == 0 && packed_left_ > 0) {
    const uint64_t bytes = std::min<uint64_t>(piece_.size(), packed_left_);
    file_.read(piece_.data(), bytes);
    packed_left_ -= bytes;
    stream_.next_in = piece_.data();
    stream_.avail_in = static_cast<uInt>(bytes);
  }
  // Without input it may still have output to give; without either it says that it is stuck.
  const int status = ended_ ? Z_BUF_ERROR : ::inflate(&stream_, Z_NO_FLUSH);
  if (status == Z_MEM_ERROR) throw std::bad_alloc();
  if (status != Z_OK && status != Z_STREAM_END) fail();
  ended_ = status == Z_STREAM_END;
}

void EntryInput::fetch(void* data, size_t bytes) {
  if (entry_.method == stored) {
    file_.read(data, bytes);
  } else {
    constexpr size_t most = 1 << 30;  // zlib counts in 32 bits
    auto* const to = static_cast<Bytef*>(data);
    for (size_t done = 0; done < bytes; done += most) {
      stream_.next_out = to + done;
      stream_.avail_out = static_cast<uInt>(std::min(most, bytes - done));
      while (stream_.avail_out > 0) inflate_on();
    }
  }
  crc_ = checksum(crc_, data, bytes);
}

void EntryInput::verify() {
  Bytef beyond = 0;
  stream_.next_out = &beyond;
  stream_.avail_out = 1;
  while (entry_.method == deflated && !ended_ && stream_.avail_out > 0) inflate_on();
  if (left() > 0 || (entry_.method == deflated && stream_.avail_out == 0)) fail();
  if (crc_ != entry_.crc) BS_THROW(IoError, "{}: damaged: its checksum is wrong", path());
}

}  // namespace

void save_npz(const std::string& path, const std::map<std::string, Tensor>& arrays) try {
  constexpr size_t longest = std::numeric_limits<uint16_t>::max() - suffix.size();
  for (const auto& [name, tensor] : arrays) {
    BS_CHECK(tensor.defined(), "save_npz: '{}' is an undefined tensor", name);
    BS_CHECK(!name.empty() && name.size() <= longest && is_utf8(name),
             "save_npz: a name of {} bytes: from 1 to {} of UTF-8 are allowed", name.size(),
             longest);
  }
  AtomicFile file(path);
  std::string directory;
  uint64_t written = 0;
  for (const auto& [name, tensor] : arrays) {
    const Tensor host = host_copy(tensor);
    const std::string header = npy_header(host);
    const bool empty = host.numel() == 0;
    Entry e{.name = name + std::string(suffix), .offset = written};
    const bool ascii = std::all_of(name.begin(), name.end(), [](char c) { return c > 0; });
    e.flags = ascii ? 0 : utf8_flag;
    e.size = e.packed = header.size() + host.bytes();
    e.crc = checksum(0, header.data(), header.size());
    if (!empty) e.crc = checksum(e.crc, host.data(), host.bytes());
    const std::string local = local_header(e);
    file.write(local.data(), local.size());
    file.write(header.data(), header.size());
    write_values(file, host);
    written += local.size() + e.size;
    directory += central_header(e);
  }
  file.write(directory.data(), directory.size());
  const std::string end = end_records(arrays.size(), written, directory.size());
  file.write(end.data(), end.size());
  file.commit();
} catch (const std::bad_alloc&) {
  out_of_own_memory("save_npz", path);
}

std::map<std::string, Tensor> load_npz(const std::string& path, Device device) try {
  InputFile file(path);
  std::map<std::string, Tensor> arrays;
  for (const Entry& e : read_directory(file)) {
    if (!is_utf8(e.name)) BS_THROW(IoError, "{}: a name is not UTF-8", path);
    EntryInput input(file, e);
    const Tensor array = load_npy(input, device);
    input.verify();
    std::string name =
        e.name.ends_with(suffix) ? e.name.substr(0, e.name.size() - suffix.size()) : e.name;
    if (!arrays.emplace(std::move(name), array).second)
      BS_THROW(IoError, "{}: two entries are named {}", path, e.name);
  }
  return arrays;
} catch (const std::bad_alloc&) {
  out_of_own_memory("load_npz", path);
}

}  // namespace bs
