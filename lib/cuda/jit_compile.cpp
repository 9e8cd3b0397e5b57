#include <bs/lib/cuda/jit.h>
#include <bs/lib/cuda/jit_cache.h>
#include <bs/lib/cuda/loaded.h>

#include <algorithm>
#include <charconv>
#include <vector>

namespace bs::cuda::jit {

namespace {

void check(nvrtcResult status, const char* call) {
  if (status != NVRTC_SUCCESS)
    BS_THROW(CudaError, "jit: {}: {}", call, nvrtc().error_string(status));
}
#define BS_NVRTC_CHECK(call) check((call), #call)

class Program {
 public:
  explicit Program(const Source& source) {
    std::vector<std::string> names, texts;  // NVRTC wants zeros at the ends
    for (const Header* header : included(source)) {
      names.emplace_back(header->name);
      texts.emplace_back(header->text);
    }
    std::vector<const char*> name_pointers, text_pointers;
    for (const std::string& name : names) name_pointers.push_back(name.c_str());
    for (const std::string& text : texts) text_pointers.push_back(text.c_str());
    BS_NVRTC_CHECK(nvrtc().create(&program_, source.code.c_str(), (source.name + ".cu").c_str(),
                                  static_cast<int>(names.size()), text_pointers.data(),
                                  name_pointers.data()));
  }
  ~Program() { nvrtc().destroy(&program_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  bool compile(const std::vector<std::string>& options) {
    std::vector<const char*> pointers;
    pointers.reserve(options.size());
    for (const std::string& option : options) pointers.push_back(option.c_str());
    const nvrtcResult status =
        nvrtc().compile(program_, static_cast<int>(pointers.size()), pointers.data());
    if (status != NVRTC_ERROR_COMPILATION) BS_NVRTC_CHECK(status);
    return status == NVRTC_SUCCESS;
  }

  std::string log() const {
    size_t bytes = 0;
    BS_NVRTC_CHECK(nvrtc().log_size(program_, &bytes));
    std::string text(bytes, '\0');
    BS_NVRTC_CHECK(nvrtc().log(program_, text.data()));
    // The same kernel has the same log, however long ptxas took this time.
    const size_t time = text.find("ptxas info    : Compile time");
    if (time != std::string::npos) text.erase(time, text.find('\n', time) - time);
    while (!text.empty() && (text.back() == '\0' || text.back() == '\n')) text.pop_back();
    return text;
  }

  std::string cubin() const {
    size_t bytes = 0;
    BS_NVRTC_CHECK(nvrtc().cubin_size(program_, &bytes));
    std::string image(bytes, '\0');
    BS_NVRTC_CHECK(nvrtc().cubin(program_, image.data()));
    return image;
  }

 private:
  nvrtcProgram program_ = nullptr;
};

/// The number before `unit` in ptxas' words, summed over its occurrences; 0 where there is none.
int number_before(std::string_view log, std::string_view unit) {
  int sum = 0;
  for (size_t at = log.find(unit); at != std::string_view::npos; at = log.find(unit, at + 1)) {
    size_t first = at;
    while (first > 0 && log[first - 1] >= '0' && log[first - 1] <= '9') --first;
    int value = 0;
    std::from_chars(log.data() + first, log.data() + at, value);
    sum += value;
  }
  return sum;
}

/// From ptxas' report on the one kernel of the program. Functions it calls and does not inline are
/// reported with it: their frames count as well.
Resources resources_of(std::string_view log) {
  return {.registers = number_before(log, " registers"),
          .local_bytes = number_before(log, " bytes stack frame"),
          .spill_bytes =
              number_before(log, " bytes spill stores") + number_before(log, " bytes spill loads"),
          .shared_bytes = number_before(log, " bytes smem")};
}

std::string_view line_of(std::string_view text, int number) {
  size_t first = 0;
  for (int i = 1; i < number && first != std::string_view::npos; ++i) {
    first = text.find('\n', first);
    if (first != std::string_view::npos) ++first;
  }
  if (number < 1 || first == std::string_view::npos || first >= text.size()) return {};
  return text.substr(first, text.find('\n', first) - first);
}

/// `file(line): error` of the log, resolved to the text it speaks of: a few lines with numbers.
std::string lines_spoken_of(const Source& source, std::string_view log) {
  const size_t error = std::min(log.find("): error"), log.find("): catastrophic error"));
  const size_t open = error == std::string_view::npos ? error : log.rfind('(', error);
  if (open == std::string_view::npos) return "";
  int line = 0;
  std::from_chars(log.data() + open + 1, log.data() + error, line);
  size_t first = log.rfind('\n', open);
  first = first == std::string_view::npos ? 0 : first + 1;
  const std::string_view file = log.substr(first, open - first);
  std::string_view text;
  if (file == source.name + ".cu") text = source.code;
  for (const Header& header : source.headers)
    if (file == header.name) text = header.text;
  std::string out;
  for (int i = std::max(1, line - 2); i <= line + 2 && !text.empty(); ++i)
    out += format("{} {}: {}\n", i == line ? ">" : " ", i, line_of(text, i));
  return out.empty() ? out : format("\n{} around line {}:\n{}", file, line, out);
}

std::vector<int> known_architectures() {
  int count = 0;
  BS_NVRTC_CHECK(nvrtc().count_architectures(&count));
  std::vector<int> known(static_cast<size_t>(count));
  BS_NVRTC_CHECK(nvrtc().architectures(known.data()));
  return known;
}

void check_architecture(const Source& source, int capability) {
  if (compiles_for(capability)) return;
  std::string list;
  for (int one : known_architectures()) list += format("{}{}", list.empty() ? "" : ", ", one);
  BS_THROW(Error,
           "jit: kernel {}: this NVRTC does not compile for compute capability {}; it does for {}",
           source.name, capability, list);
}

}  // namespace

bool compiles_for(int capability) {
  const std::vector<int> known = known_architectures();
  return std::find(known.begin(), known.end(), capability) != known.end();
}

std::string architecture(int capability) {
  // From Hopper on the fastest instructions exist only in the architecture's own variant.
  return format("sm_{}{}", capability, capability >= 90 ? "a" : "");
}

const std::vector<std::string>& compile_options() {
  static const auto* const options = [] {
    auto* const list = new std::vector<std::string>{"-std=c++20", "-default-device", "-lineinfo",
                                                    "-no-source-include", "-Xptxas=-v",
                                                    // As in the C library, which NVRTC is without.
                                                    "-DINFINITY=__int_as_float(0x7f800000)"};
    int major = 0, minor = 0;
    BS_NVRTC_CHECK(nvrtc().version(&major, &minor));
    // Without textures and the runtime's own functions, of which a kernel here uses none: 4 ms.
    if (major * 100 + minor >= 1204) list->emplace_back("-minimal");
    // NVRTC has a cache of its own since 12.9; ours is enough.
    if (major * 100 + minor >= 1209) list->emplace_back("-no-cache");
    return list;
  }();
  return *options;
}

std::string identity(const Source& source, int capability) {
  int major = 0, minor = 0;
  BS_NVRTC_CHECK(nvrtc().version(&major, &minor));
  std::string text = format("bs-jit 2\nname {}\narch {}\nnvrtc {}.{}\noptions", source.name,
                            architecture(capability), major, minor);
  for (const std::string& option : compile_options()) text += " " + option;
  text += "\n";
  for (const Header* header : included(source))
    text += format("header {} {}\n", header->name, header->hash);
  return text;
}

Binary compile(const Source& source, int capability) {
  check_architecture(source, capability);
  Program program(source);
  std::vector<std::string> options = compile_options();
  options.push_back("-arch=" + architecture(capability));
  const bool compiled = program.compile(options);
  std::string log = program.log();
  if (!compiled)
    BS_THROW(Error, "jit: kernel {} does not compile for {}:\n{}{}", source.name,
             architecture(capability), log, lines_spoken_of(source, log));
  const Resources resources = resources_of(log);
  BS_CHECK(resources.registers > 0, "jit: kernel {}: ptxas reports nothing on it; the log is:\n{}",
           source.name, log);
  return {program.cubin(), resources, std::move(log)};
}

}  // namespace bs::cuda::jit
