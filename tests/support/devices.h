#pragma once
/** @file Which device the tests of this process run on. */
#include <bs/lib/device.h>

namespace bs::test {

/** @brief The device under test: BS_TEST_DEVICE, or the CPU. */
Device test_device();

}  // namespace bs::test
