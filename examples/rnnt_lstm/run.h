#pragma once
/** @file One run: look the data over, train, measure, save, report. */
#include <bs/examples/rnnt_lstm/corpus.h>

namespace bs::example {

/** @brief Does what the options say, with files in options.out.
 *  @param[in] program its name, to tell how to resume
 *  @return exit status: 0, or 130 after an interrupt
 *  @throws UsageError and other Errors */
int run(const Options& options, const Corpus& corpus, const std::string& program);

}  // namespace bs::example
