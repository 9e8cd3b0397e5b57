// Reads headers and writes a source that hands every function they declare to the test of misuse,
// so that a new function is tried without anybody having to list it.
//
//   list_functions OUTPUT ROOT HEADER...
#include <algorithm>
#include <cctype>
#include <fstream>
#include <iostream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace {

/** One declaration at namespace scope. */
struct Function {
  std::string scope, result, name, parameters;
};

std::string read(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw std::runtime_error("list_functions: cannot read " + path);
  return {std::istreambuf_iterator<char>(in), {}};
}

/** The text without comments, preprocessor lines, strings' contents and uses of macros, such as the
 *  twins' declarations. */
std::string strip(const std::string& text) {
  std::string s = std::regex_replace(text, std::regex(R"(//[^\n]*|"[^"\n]*")"), "");
  for (size_t at; (at = s.find("/*")) != std::string::npos;) s.erase(at, s.find("*/", at) + 2 - at);
  s = std::regex_replace(s, std::regex(R"(\n[ ]*#([^\n]*\\\n)*[^\n]*)"), "\n");
  for (std::smatch m; std::regex_search(s, m, std::regex(R"(\nBS_[A-Z_]+\()"));) {
    const auto at = static_cast<size_t>(m.position());
    size_t end = s.find('(', at);
    int depth = 0;
    do {
      depth += s[end] == '(' ? 1 : s[end] == ')' ? -1 : 0;
      ++end;
    } while (depth > 0 && end < s.size());
    s.replace(at, end - at, ";");
  }
  s = std::regex_replace(s, std::regex(R"(\bextern\s*\{)"), "namespace {");  // of the language C
  return std::regex_replace(s, std::regex(R"(\s+)"), " ");
}

std::string trim(const std::string& s) {
  const size_t from = s.find_first_not_of(' '), to = s.find_last_not_of(' ');
  return from == std::string::npos ? "" : s.substr(from, to - from + 1);
}

/** Cuts at commas that stand in no brackets. */
std::vector<std::string> split_parameters(const std::string& list) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : list) {
    depth += std::string_view("(<{").find(c) != std::string_view::npos ? 1 : 0;
    depth -= std::string_view(")>}").find(c) != std::string_view::npos ? 1 : 0;
    if (c == ',' && depth == 0)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

/** `const Tensor& x = {}` -> `const Tensor&`. */
std::string type_of(const std::string& parameter) {
  const std::string declared = trim(parameter.substr(0, parameter.find('=')));
  return std::regex_replace(declared, std::regex(R"([ ]*\b\w+$)"), "");
}

/** Whether the test can call it: neither a template nor a part of a front door, which trusts its
 *  caller, nor a function of functions; of C neither what frees nor what takes a pointer at its
 * word.
 */
bool callable(const std::string& declaration) {
  static const std::regex other(
      R"(^(template|struct|class|enum|using|typedef|friend|extern|constexpr|BS_HOST_DEVICE)\b)"
      R"(|const char\*|initializer_list<|std::function<|PartLoss|\boperator\s*\(\)|\[\[|Tape&)"
      R"(|^inline constexpr|void ?\* ?\*?|DLManaged|bs_lstm|_(free|leave|error|version)\()");
  return !std::regex_search(declaration, other);
}

void add(const std::string& text, const std::string& scope, std::vector<Function>& to) {
  const std::string declaration = trim(text);
  // What they return is not initialised, so that no call may be given it.
  static const std::regex left_out(R"(empty_image|empty_image_like)");
  static const std::regex function(
      R"(^(?:inline |BS_C_API )?(.+?[ &*>])(\w+|operator[^\s(]+)\((.*)\)$)");
  std::smatch m;
  if (!callable(declaration) || !std::regex_match(declaration, m, function) ||
      std::regex_match(m[2].str(), left_out))
    return;
  std::string types;
  if (!trim(m[3]).empty())
    for (const std::string& parameter : split_parameters(m[3]))
      types += (types.empty() ? "" : ", ") + type_of(parameter);
  to.push_back({scope, trim(m[1]), m[2], types});
}

/** Walks the braces: what ends in `;` or opens a body at namespace scope is a declaration. */
std::vector<Function> functions_of(const std::string& s) {
  std::vector<Function> found;
  std::vector<std::string> scopes;
  std::string text;
  int bodies = 0;
  const auto scope = [&] {
    std::string all;
    for (const std::string& name : scopes) all += (all.empty() ? "" : "::") + name;
    return all;
  };
  static const std::regex space(R"(namespace ([\w:]*) ?$)");
  int round = 0;
  for (const char c : s) {
    round += c == '(' ? 1 : c == ')' ? -1 : 0;
    std::smatch m;
    if (c == '{' && bodies == 0 && std::regex_search(text, m, space)) {
      scopes.push_back(m[1]);
      text.clear();
    } else if (c == '{' && round == 0) {
      if (bodies++ == 0 && !text.empty() && trim(text).back() == ')') {
        add(text, scope(), found);
        text.clear();
      }
    } else if (c == '}' && round == 0) {
      if (bodies == 0)
        scopes.pop_back();
      else if (--bodies == 0 && !text.empty() && text.find("struct") == std::string::npos)
        text.clear();
    } else if (c == ';' && bodies == 0) {
      add(text, scope(), found);
      text.clear();
    } else if (bodies == 0) {
      text += c;
    }
  }
  return found;
}

}  // namespace

int main(int argc, char** argv) try {
  std::ostringstream includes, calls;
  int count = 0;
  for (int i = 3; i < argc; ++i) {
    const std::string header = argv[i];
    includes << "#include <bs/" << header << ">\n";
    for (const Function& f : functions_of(strip(read(std::string(argv[2]) + "/" + header)))) {
      if (!f.scope.empty() && f.scope != "bs" && f.scope != "bs::epilogue" &&
          f.scope != "bs::patterns")
        continue;
      calls << "namespace " << f.scope << " {\nstatic const bs::test::Listed listed_" << count++
            << "(\"" << header << "\", \"" << f.name << "\",\n    static_cast<" << f.result
            << " (*)(" << f.parameters << ")>(&" << f.name << "));\n}\n";
    }
  }
  std::ofstream out(argv[1]);
  out << "// Generated by tests/misuse/list_functions.cpp.\n#include <bs/tests/misuse/c_values.h>\n"
      << includes.str() << calls.str();
  std::cout << count << " functions of " << argc - 3 << " headers\n";
  return out.flush() ? 0 : 1;
} catch (const std::exception& e) {
  std::cerr << e.what() << '\n';
  return 1;
}
