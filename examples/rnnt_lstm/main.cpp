/** @file An LSTM transducer that writes down what people say, trained on recordings: `--help`. */
#include <bs/examples/rnnt_lstm/audio.h>
#include <bs/examples/rnnt_lstm/run.h>
#include <bs/examples/rnnt_lstm/smoke.h>
#include <bs/examples/rnnt_lstm/stream.h>
#include <bs/examples/support/interrupt.h>
#include <bs/examples/support/program.h>

int main(int argc, char** argv) {
  using namespace bs::example;
  return run_program("rnnt_lstm", [&] {
    Options options;
    if (!parse_options(argc, argv, options)) return 0;
    if (options.smoke) {
      smoke(options);
      return 0;
    }
    catch_interrupts();
    if (!options.stream.empty()) return stream(options, read_audio(options.stream, options.rate));
    const Corpus corpus = Corpus::read(
        options, [&](const std::string& path) { return read_audio(path, options.rate); });
    return run(options, corpus, argv[0]);
  });
}
