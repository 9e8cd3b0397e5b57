#pragma once
/** @file Characters of one font as images, by FreeType. */
#include <bs/examples/image_classifier/labelled_images.h>

#include <string>

namespace bs::example {

/** @brief The classes of images of fonts. */
inline constexpr const char* font_characters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";

/** @brief All characters of a font: as large as its largest allow, and at three and two quarters of
 *  that. Adds nothing where the file cannot be read, is no TrueType or OpenType font, or lacks one.
 */
void add_font(const std::string& path, Images& to);

}  // namespace bs::example
