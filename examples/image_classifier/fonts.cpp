#include <bs/examples/image_classifier/fonts.h>
#include <bs/examples/support/files.h>
#include <ft2build.h>
#include FT_FREETYPE_H

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <random>

namespace bs::example {
namespace {

constexpr const char* characters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
constexpr int64_t held_out_every = 5;

struct Library {
  FT_Library handle = nullptr;
  Library() { BS_CHECK(FT_Init_FreeType(&handle) == 0, "fonts: FreeType does not start"); }
  ~Library() { FT_Done_FreeType(handle); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
};

struct FaceCloser {
  void operator()(FT_Face face) const { FT_Done_Face(face); }
};
using Face = std::unique_ptr<FT_FaceRec_, FaceCloser>;

/// Ink of a character, `width` pixels a row.
struct Glyph {
  int64_t width = 0, height = 0;
  std::vector<float> ink;
};

bool render(FT_Face face, char character, Glyph& glyph) {
  const FT_UInt index = FT_Get_Char_Index(face, static_cast<FT_ULong>(character));
  if (index == 0 || FT_Load_Glyph(face, index, FT_LOAD_RENDER | FT_LOAD_NO_HINTING) != 0)
    return false;
  const FT_Bitmap& map = face->glyph->bitmap;
  if (map.pixel_mode != FT_PIXEL_MODE_GRAY || map.rows == 0 || map.width == 0) return false;
  glyph.width = map.width, glyph.height = map.rows;
  glyph.ink.clear();
  for (unsigned row = 0; row < map.rows; ++row)
    for (unsigned column = 0; column < map.width; ++column) {
      const auto at = static_cast<std::ptrdiff_t>(row) * map.pitch + column;
      glyph.ink.push_back(static_cast<float>(map.buffer[at]) / 255);
    }
  return true;
}

/// The character somewhere on a square of paper, at places that `places` draws; false where it does
/// not fit.
bool add_image(const Glyph& glyph, int64_t character, std::mt19937_64& places, Images& to) {
  const int64_t below = to.size - glyph.height, right = to.size - glyph.width;
  if (std::min(below, right) < 0) return false;
  const auto top = static_cast<int64_t>(places() % static_cast<uint64_t>(below + 1));
  const auto left = static_cast<int64_t>(places() % static_cast<uint64_t>(right + 1));
  const auto first = static_cast<int64_t>(to.pixels.size());
  to.pixels.resize(to.pixels.size() + static_cast<size_t>(to.size * to.size));
  for (int64_t row = 0; row < glyph.height; ++row)
    std::copy_n(glyph.ink.data() + row * glyph.width, glyph.width,
                to.pixels.data() + first + (top + row) * to.size + left);
  to.classes.push_back(character);
  return true;
}

/// All characters of a font at one height; false where it lacks some, as a font of symbols does, or
/// where they do not fit.
bool add_height(FT_Face face, int64_t height, Images& to) {
  if (FT_Set_Pixel_Sizes(face, 0, static_cast<FT_UInt>(height)) != 0) return false;
  Images all{.size = to.size, .pixels = {}, .classes = {}};
  std::mt19937_64 places(static_cast<uint64_t>(to.count()));
  Glyph glyph;
  for (int64_t c = 0; characters[c] != 0; ++c)
    if (!render(face, characters[c], glyph) || !add_image(glyph, c, places, all)) return false;
  to.pixels.insert(to.pixels.end(), all.pixels.begin(), all.pixels.end());
  to.classes.insert(to.classes.end(), all.classes.begin(), all.classes.end());
  return true;
}

/// All characters of a font: as large as its largest allow, and at three and two quarters of that.
void add_font(FT_Library library, const std::string& path, Images& to) {
  FT_Face opened = nullptr;
  if (FT_New_Face(library, path.c_str(), 0, &opened) != 0) return;
  const Face face(opened);
  if (!FT_IS_SCALABLE(face)) return;
  int64_t height = to.size + to.size / 4;
  while (height >= to.size / 2 && !add_height(face.get(), height, to)) --height;
  if (height < to.size / 2) return;
  add_height(face.get(), height * 3 / 4, to);
  add_height(face.get(), height / 2, to);
}

/// Files of fonts by the folder they are in, in one order on every machine.
std::map<std::string, std::vector<std::string>> font_files(const std::string& folder) {
  std::map<std::string, std::vector<std::string>> families;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string kind = entry.path().extension().string();
    if (entry.is_regular_file() && (kind == ".ttf" || kind == ".otf"))
      families[entry.path().parent_path().string()].push_back(entry.path().string());
  }
  for (auto& [family, files] : families) std::sort(files.begin(), files.end());
  return families;
}

}  // namespace

ImageData read_fonts(const Options& options) {
  const auto families = font_files(options.data);
  if (static_cast<int64_t>(families.size()) < held_out_every)
    BS_THROW(UsageError, "--data {}: {} folders with fonts are too few, 5 are needed", options.data,
             families.size());
  const Library library;
  ImageData data;
  data.train.size = data.held_out.size = options.size;
  int64_t number = 0;
  for (const auto& [family, files] : families) {
    Images& to = ++number % held_out_every == 0 ? data.held_out : data.train;
    for (const std::string& file : files) add_font(library.handle, file, to);
  }
  if (data.train.count() == 0 || data.held_out.count() == 0)
    BS_THROW(UsageError, "--data {}: no font there has all letters and digits", options.data);
  for (const char* c = characters; *c != 0; ++c) data.names.emplace_back(1, *c);
  uint64_t hash = fnv1a(data.train.pixels.data(), data.train.pixels.size() * sizeof(float));
  hash = fnv1a(data.held_out.pixels.data(), data.held_out.pixels.size() * sizeof(float), hash);
  data.fingerprint = format("{} images, hash {}", data.train.count() + data.held_out.count(), hash);
  return data;
}

}  // namespace bs::example
