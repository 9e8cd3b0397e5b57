#pragma once
/** @file Whether sanitizers watch. They judge accesses, which a few calls show; an ordinary build
 *  judges numbers. */

namespace bs::test {

#if BS_SANITIZED
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

}  // namespace bs::test
