#pragma once
/** @file Characters of fonts as images, by FreeType. */
#include <bs/examples/image_classifier/images.h>

namespace bs::example {

/** @brief Characters of all fonts in the folders of options.data, at three sizes, each somewhere in
 *  its image. A folder is a family: every fifth is held out, so that what is measured are
 * characters of fonts never seen.
 *  @throws UsageError where there are fewer than five folders with fonts */
ImageData read_fonts(const Options& options);

}  // namespace bs::example
