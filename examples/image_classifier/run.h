#pragma once
/** @file One run: train, prune, measure, save, draw. */
#include <bs/examples/image_classifier/options.h>

namespace bs::example {

/** @brief Does what the options say, with files in options.out.
 *  @param[in] program its name, to tell how to resume
 *  @return exit status: 0, or 130 after an interrupt
 *  @throws UsageError and other Errors */
int run(const Options& options, const std::string& program);

}  // namespace bs::example
