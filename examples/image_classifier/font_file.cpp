#include <bs/examples/image_classifier/font_file.h>
#include <bs/lib/check.h>
#include <bs/lib/file.h>
#include <ft2build.h>
#include FT_FREETYPE_H
#include FT_OUTLINE_H

#include <algorithm>
#include <memory>
#include <random>

namespace bs::example {
namespace {

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

/// Whether an outline covers at most `side` pixels each way: one of hundreds of bytes can ask for a
/// picture of a gigabyte.
bool fits(const FT_Outline& outline, int64_t side) {
  FT_BBox box = {};
  FT_Outline_Get_CBox(const_cast<FT_Outline*>(&outline), &box);
  return (box.xMax - box.xMin) >> 6 <= side && (box.yMax - box.yMin) >> 6 <= side;
}

/// False where the font has no such character, or one of more than `side` pixels.
bool render(FT_Face face, char character, int64_t side, Glyph& glyph) {
  const FT_UInt index = FT_Get_Char_Index(face, static_cast<FT_ULong>(character));
  if (index == 0 || FT_Load_Glyph(face, index, FT_LOAD_NO_HINTING) != 0) return false;
  const bool drawn = face->glyph->format == FT_GLYPH_FORMAT_OUTLINE;
  if (drawn && !fits(face->glyph->outline, side)) return false;
  if (FT_Render_Glyph(face->glyph, FT_RENDER_MODE_NORMAL) != 0) return false;
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
  for (int64_t c = 0; font_characters[c] != 0; ++c)
    if (!render(face, font_characters[c], to.size, glyph) || !add_image(glyph, c, places, all))
      return false;
  to.pixels.insert(to.pixels.end(), all.pixels.begin(), all.pixels.end());
  to.classes.insert(to.classes.end(), all.classes.begin(), all.classes.end());
  return true;
}

/// Whether a file begins as one of outlines does, in tables that lie in it as they are. Others can
/// be packed, and grow without bound as FreeType opens them.
bool is_plain(const std::string& path) try {
  const std::string kind = InputFile(path).read_text(4);
  return kind == "OTTO" || kind == "true" || kind == std::string("\0\1\0\0", 4);
} catch (const IoError&) {
  return false;
}

}  // namespace

void add_font(const std::string& path, Images& to) {
  if (!is_plain(path)) return;
  const Library library;
  FT_Face opened = nullptr;
  if (FT_New_Face(library.handle, path.c_str(), 0, &opened) != 0) return;
  const Face face(opened);
  if (!FT_IS_SCALABLE(face)) return;
  int64_t height = to.size + to.size / 4;
  while (height >= to.size / 2 && !add_height(face.get(), height, to)) --height;
  if (height < to.size / 2) return;
  add_height(face.get(), height * 3 / 4, to);
  add_height(face.get(), height / 2, to);
}

}  // namespace bs::example
