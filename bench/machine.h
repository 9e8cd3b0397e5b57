#pragma once
/** @file What a benchmark ran on: processor, versions, commit. */
#include <bs/lib/device.h>
#include <bs/lib/json.h>

namespace bs::bench {

/** @brief Name, driver and CUDA version of a GPU, or model and threads of a CPU; besides, the
 * commit this was built from ("-dirty" with changes), and the day. What cannot be found out is left
 * out. */
Json::Object describe_machine(Device device);

}  // namespace bs::bench
