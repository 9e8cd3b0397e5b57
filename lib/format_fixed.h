#pragma once
/** @file Numbers with a fixed number of decimals, in every locale. */
#include <string>

namespace bs {

/** @brief `value` with so many decimals, as printf's "%.*f" where the decimal point is a point. In
 *  other locales printf writes a comma, and this does not. */
std::string format_fixed(double value, int decimals);

}  // namespace bs
