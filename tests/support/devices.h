#pragma once
/** @file Which device the tests of this process run on. */
#include <bs/lib/device.h>

namespace bs::test {

/** @brief The device under test: BS_TEST_DEVICE, or the CPU. */
Device test_device();

/** @brief An extent that sends a GPU a way of its own for large problems; a small one on the CPU,
 *  which has one way for all. */
inline int large_on_gpu(int large, int small) { return test_device().is_cuda() ? large : small; }

}  // namespace bs::test
