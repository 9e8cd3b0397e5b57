#pragma once
/** @file The outermost frame of an example. */
#include <bs/examples/support/run_options.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string>

namespace bs::example {

/** @brief `text` for a terminal: control characters but tabs and ends of lines become '?', those
 *  of U+0080 to U+009F among them, which some terminals obey. */
inline std::string printable(std::string text) {
  const auto is = [&](size_t at, unsigned char low, unsigned char high) {
    const auto byte = static_cast<unsigned char>(at < text.size() ? text[at] : 0);
    return byte >= low && byte <= high;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    char& c = text[i];
    if ((is(i, 0, 0x1f) && c != '\n' && c != '\t') || is(i, 0x7f, 0x7f)) c = '?';
    if (is(i, 0xc2, 0xc2) && is(i + 1, 0x80, 0x9f)) text.replace(i, 2, "?");  // in UTF-8
  }
  return text;
}

/** @brief Opens /dev/null in place of standard streams that are closed: a file opened later would
 * get their numbers, and what is printed. */
inline void open_standard_streams() {
  int descriptor = 0;
  do {
    descriptor = ::open("/dev/null", O_RDWR);
  } while (descriptor >= 0 && descriptor <= STDERR_FILENO);
  if (descriptor > STDERR_FILENO) ::close(descriptor);
}

/** @brief What `work` returns, for main to return; where it throws, says why and returns 2 for a
 *  wrong command line, 3 where training has diverged, 1 for all else, a standard output that cannot
 *  be written among it. */
template <class Work>
int run_program(const char* name, const Work& work) {
  constexpr int failed = 1, wrong_usage = 2, diverged = 3;
  open_standard_streams();
  try {
    const int status = work();
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
    std::fprintf(stderr, "%s: standard output: %s\n", name, std::strerror(errno));
    return status == 0 ? failed : status;
  } catch (const Diverged& error) {
    std::fprintf(stderr, "%s: %s\n", name, printable(error.what()).c_str());
    return diverged;
  } catch (const UsageError& error) {
    std::fprintf(stderr, "%s: %s (--help lists the options)\n", name,
                 printable(error.what()).c_str());
    return wrong_usage;
  } catch (const std::bad_alloc&) {  // whose text tells a user nothing
    std::fprintf(stderr, "%s: the host has no memory left\n", name);
    return failed;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name, printable(error.what()).c_str());
    return failed;
  }
}

}  // namespace bs::example
