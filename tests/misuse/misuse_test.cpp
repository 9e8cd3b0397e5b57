// Every function that the headers declare, and every layer made of options and called, with every
// argument and option wrong in turn: it gives a result or throws bs::Error, and touches no memory
// but its own. They come from list_functions.cpp, which reads the headers, so that a new one is
// tried as soon as it is declared.
//
// Nobody says what right arguments are. They are searched for: an error that was not seen before
// means that a call came farther than the ones before, and its arguments are varied on.
#include <bs/autograd/tape.h>
#include <bs/kernels/copy.h>
#include <bs/lib/memory.h>
#include <bs/tests/misuse/starts.h>
#include <bs/tests/support/sanitized.h>
#include <doctest/doctest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <set>

using namespace bs;
using namespace bs::test;

namespace {

const Function* running = nullptr;
const Arguments* with = nullptr;

std::string describe(const Function& f, const Arguments& arguments) {
  std::string text = f.name + " of " + f.header + "\n";
  for (size_t i = 0; i < arguments.size(); ++i)
    text += "  " + std::to_string(i) + ": " + f.parameters[i]->show(arguments[i]) + "\n";
  return text;
}

}  // namespace

/** The sanitizers call these before they report: whose call it was. */
extern "C" void __asan_on_error() {
  if (running) std::fputs(describe(*running, *with).c_str(), stderr);
}
extern "C" void __ubsan_on_report() { __asan_on_error(); }

namespace bs::test {

std::vector<Function>& functions() {
  static std::vector<Function> all;
  return all;
}

Listed::Listed(const char* header, const char* name,
               std::initializer_list<const ParameterValues*> parameters, Function::Any function,
               Function::Invoke call) {
  functions().push_back({header, name, parameters, function, call});
}

void take(const Tensor& result, Source& to) {
  if (!result.defined() || result.device().is_cuda()) return;
  clone(result);  // reads all of it
  if (result.numel() <= 4096) to.keep(result);
}

void take(const Variable& result, Source& to) {
  if (!result.defined()) return;
  take(result.data(), to);
  if (result.requires_grad()) result.backward(clone(result.data()), {.retain_graph = true});
}

namespace {

class Misuse {
 public:
  explicit Misuse(const Function& f, Source& source) : f_(f), source_(source) {}

  /** One call: what became of it, without the numbers. */
  std::string call(Arguments arguments) {
    ++calls;
    running = &f_;
    with = &arguments;
    const std::clock_t start = std::clock();
    std::string outcome;
    try {
      f_.invoke(f_.function, arguments, source_);
      outcome = "done";
      ++done;
    } catch (const Error& e) {
      outcome = e.what();
    } catch (const std::exception& e) {
      found(arguments, std::string("throws ") + typeid(e).name() + ": " + e.what());
      outcome = e.what();
    }
    const double took = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    if (took > longest) found(arguments, format("took {} s", took));
    tape().clear();
    running = nullptr;
    std::erase_if(outcome, [](char c) { return c >= '0' && c <= '9'; });
    return outcome;
  }

  /** Calls with arguments that fit, where somebody wrote them down. */
  void start(const Starts& starts) {
    Arguments unset;
    for (const ParameterValues* p : f_.parameters) unset.push_back(p->unset());
    for (const Arguments& arguments : starts.of(f_.name, unset)) keep(arguments);
  }

  /** Looks for arguments that bring calls farther. */
  void search(int tries) {
    for (int i = 0; i < tries; ++i) {
      Arguments arguments;
      try {
        arguments = next();
      } catch (const Error&) {  // arguments made of large results
        continue;
      }
      keep(arguments);
    }
  }

  /** Each argument wrong in turn, from what came farthest. */
  void each_wrong(int from) {
    if (!right_.empty()) corpus_.push_back(right_);
    const int first = std::max(0, static_cast<int>(corpus_.size()) - from);
    for (size_t c = static_cast<size_t>(first); c < corpus_.size(); ++c)
      for (size_t i = 0; i < f_.parameters.size(); ++i) {
        const int wrongs = f_.parameters[i]->wrongs(corpus_[c][i]);
        for (int k = 0; k < wrongs; ++k) {
          Arguments arguments = corpus_[c];
          try {
            f_.parameters[i]->make_wrong(arguments[i], k);
          } catch (const Error&) {
            continue;
          }
          call(arguments);
        }
      }
  }

  int calls = 0, done = 0;
  std::string newest;  ///< of the outcomes, without numbers

 private:
  static constexpr double longest = 4;  ///< seconds of the CPU

  void keep(const Arguments& arguments) {
    const int done_before = done;
    const auto [outcome, is_new] = seen_.insert(call(arguments));
    if (is_new) {
      corpus_.push_back(arguments);
      newest = *outcome;
    }
    if (done > done_before) right_ = arguments;
  }

  Arguments draw() {
    Arguments arguments;
    source_.alike.reset();
    if (source_.chance(.6)) source_.alike = draw_shape(source_);
    for (const ParameterValues* p : f_.parameters) arguments.push_back(p->draw(source_));
    source_.alike.reset();
    return arguments;
  }

  Arguments next() {
    if (corpus_.empty() || source_.chance(.15)) return draw();
    Arguments arguments = corpus_[latest()];
    for (int n = 1 + source_.below(2); n > 0 && !arguments.empty(); --n) vary(arguments);
    return arguments;
  }

  /** Late members more often: they came farther. */
  size_t latest() {
    const int n = static_cast<int>(corpus_.size());
    return static_cast<size_t>(std::max(source_.below(n), source_.below(n)));
  }

  void vary(Arguments& arguments) {
    const auto i = static_cast<size_t>(source_.below(static_cast<int>(arguments.size())));
    const int wrongs = f_.parameters[i]->wrongs(arguments[i]);
    if (wrongs > 0 && source_.chance(.3))
      f_.parameters[i]->make_wrong(arguments[i], source_.below(wrongs));
    else
      arguments[i] = f_.parameters[i]->draw(source_);
  }

  void found(const Arguments& arguments, const std::string& what) {
    if (told_.insert(what).second) FAIL_CHECK(what << "\n" << describe(f_, arguments));
  }

  const Function& f_;
  Source& source_;
  std::vector<Arguments> corpus_;
  Arguments right_;  ///< of the last call that gave a result
  std::set<std::string> seen_, told_;
};

}  // namespace
}  // namespace bs::test

TEST_CASE("misuse: each function, each argument wrong in turn") {
  set_memory_limit(Device::cpu(), int64_t{8} << 20);
  const char* only = std::getenv("BS_MISUSE");  // a function's name or its header; how often to try
  const char* more = std::getenv("BS_MISUSE_TRIES");
  const char* seed = std::getenv("BS_MISUSE_SEED");
  const int tries = more ? std::atoi(more) : sanitized ? 40 : 80;
  int calls = 0, done = 0, never = 0;
  const Source first(static_cast<uint64_t>(seed ? std::atoi(seed) : 1));
  Source source = first;
  const Starts starts;
  std::string header;
  for (const Function& f : functions()) {
    if (only && f.name != only && f.header != only) continue;
    if (f.header != header) source = first;  // what other headers have changes nothing
    header = f.header;
    Misuse misuse(f, source);
    const auto start = std::chrono::steady_clock::now();
    misuse.start(starts);
    misuse.search(f.parameters.empty() ? 1 : tries);
    misuse.each_wrong(2);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (std::getenv("BS_MISUSE_VERBOSE"))
      std::printf("%s %s: %d calls, %d done, %.2f s\n", header.c_str(), f.name.c_str(),
                  misuse.calls, misuse.done, took.count());
    if (std::getenv("BS_MISUSE_VERBOSE") && misuse.done == 0)
      std::printf("  never: %s\n", misuse.newest.c_str());
    forget_handles(false);
    calls += misuse.calls;
    done += misuse.done;
    never += misuse.done == 0 ? 1 : 0;
  }
  forget_handles(true);
  set_memory_limit(Device::cpu(), 0);
  MESSAGE(functions().size() << " functions, " << calls << " calls, " << done << " with a result; "
                             << never << " functions never gave one");
}
