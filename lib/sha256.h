#pragma once
/** @file SHA-256 (FIPS 180-4): names and checks of files by what they hold. */
#include <string>
#include <string_view>

namespace bs {

/** @brief The digest of `text` in 64 hexadecimal digits. */
std::string sha256(std::string_view text);

}  // namespace bs
