// Reads headers and writes a source that hands every function they declare to the test of misuse,
// so that a new function is tried without anybody having to list it.
//
//   list_functions OUTPUT ROOT HEADER...
#include <algorithm>
#include <cctype>
#include <fstream>
#include <iostream>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace {

/** One declaration at namespace scope. */
struct Function {
  std::string scope, result, name, parameters;
};

/** A call of a layer: the method, and the types of its parameters. */
struct Call {
  std::string method;
  std::vector<std::string> types;
};

/** A class that is made of options, and the calls of its forward() or loss(). */
struct Layer {
  std::string name;
  std::vector<Call> calls;
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
 *  caller, nor a function of functions, modules or files' contents; of C neither what frees nor
 * what takes a pointer at its word.
 */
bool callable(const std::string& declaration) {
  static const std::regex other(
      R"(^(template|struct|class|enum|using|typedef|friend|extern|constexpr|BS_HOST_DEVICE)\b)"
      R"(|const char\*|initializer_list<|std::function<|PartLoss|\boperator\s*\(\)|\[\[|Tape&)"
      R"(|^inline constexpr|void ?\* ?\*?|DLManaged|bs_lstm|_(free|leave|error|version)\()"
      R"(|Module&|Optimizer&|TrainingState|Dataset|Scorer&|KroneckerLinear[&*]|KVCache&|Draws&)"
      R"(|SparseTransformer&|StateDict|detail::)");
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

/** The text between the brace at `open` and the one that closes it. */
std::string body_at(const std::string& s, size_t open) {
  int depth = 0;
  for (size_t at = open; at < s.size(); ++at) {
    depth += s[at] == '{' ? 1 : s[at] == '}' ? -1 : 0;
    if (depth == 0) return s.substr(open + 1, at - open - 1);
  }
  return "";
}

struct Class {
  std::string base, body;
};

/** The classes that have a base, by name. */
void add_classes(const std::string& s, std::map<std::string, Class>& to) {
  static const std::regex begin(R"((?:class|struct) (\w+) : (?:public )?(\w+)[^{;]*\{)");
  for (auto at = std::sregex_iterator(s.begin(), s.end(), begin); at != std::sregex_iterator();
       ++at)
    to[(*at)[1]] = {(*at)[2], body_at(s, static_cast<size_t>(at->position() + at->length() - 1))};
}

/** The calls of forward() and loss() that a class or a base of it has. Those with a cache are left
 *  out: they need one that fits. */
std::vector<Call> calls_of(const std::string& name, const std::map<std::string, Class>& classes) {
  const auto found = classes.find(name);
  if (found == classes.end()) return {};
  static const std::regex declared(
      R"([\w>&] (forward|loss)\(([^()]*(?:\([^()]*\)[^()]*)*)\) const)");
  const std::string& body = found->second.body;
  std::vector<Call> all;
  for (auto at = std::sregex_iterator(body.begin(), body.end(), declared);
       at != std::sregex_iterator(); ++at) {
    const std::string parameters = (*at)[2];
    if (parameters.find("Cache") != std::string::npos) continue;
    all.push_back({(*at)[1], {}});
    for (const std::string& parameter : split_parameters(parameters))
      all.back().types.push_back(type_of(parameter));
  }
  return all.empty() ? calls_of(found->second.base, classes) : all;
}

std::vector<Layer> layers_of(const std::string& header,
                             const std::map<std::string, Class>& classes) {
  static const std::regex begin(R"((?:class|struct) (\w+) : (?:public )?\w+[^{;]*\{)");
  std::vector<Layer> layers;
  for (auto at = std::sregex_iterator(header.begin(), header.end(), begin);
       at != std::sregex_iterator(); ++at) {
    const std::string name = (*at)[1];
    if (classes.at(name).body.find("using Options =") != std::string::npos)
      layers.push_back({name, calls_of(name, classes)});
  }
  return layers;
}

/** A function that makes a layer and calls it once, inside of a class where its names are known. */
std::string call_of(const std::string& header, const std::string& layer, const Call& call,
                    int number) {
  std::string parameters, arguments;
  for (size_t i = 0; i < call.types.size(); ++i) {
    parameters += ", " + call.types[i] + " a" + std::to_string(i);
    arguments += (i > 0 ? ", a" : "a") + std::to_string(i);
  }
  const std::string name = "Call" + std::to_string(number);
  return "namespace bs::nn {\nstruct " + name + " : " + layer +
         " {\n  static auto call(const Options& given" + parameters + ") {\n    const " + layer +
         " layer(given);\n    return layer." + call.method + "(" + arguments +
         ");\n  }\n};\nstatic const bs::test::Listed listed_" + std::to_string(number) + "(\"" +
         header + "\", \"nn::" + layer + "\", &" + name + "::call);\n}\n";
}

}  // namespace

int main(int argc, char** argv) try {
  std::ostringstream includes, calls;
  int count = 0;
  std::map<std::string, Class> classes;
  for (int i = 3; i < argc; ++i)
    add_classes(strip(read(std::string(argv[2]) + "/" + argv[i])), classes);
  for (int i = 3; i < argc; ++i) {
    const std::string header = argv[i];
    includes << "#include <bs/" << header << ">\n";
    const std::string text = strip(read(std::string(argv[2]) + "/" + header));
    for (const Layer& layer : layers_of(text, classes))
      for (const Call& call : layer.calls) calls << call_of(header, layer.name, call, count++);
    for (const Function& f : functions_of(text)) {
      static const std::regex tried(R"(|bs|bs::(epilogue|patterns|nn|nn::init|optim|decode|data))");
      if (!std::regex_match(f.scope, tried)) continue;
      calls << "namespace " << f.scope << " {\nstatic const bs::test::Listed listed_" << count++
            << "(\"" << header << "\", \"" << f.name << "\",\n    static_cast<" << f.result
            << " (*)(" << f.parameters << ")>(&" << f.name << "));\n}\n";
    }
  }
  std::ofstream out(argv[1]);
  out << "// Generated by tests/misuse/list_functions.cpp.\n#include "
         "<bs/tests/misuse/c_parameters.h>\n"
      << includes.str() << calls.str();
  std::cout << count << " functions of " << argc - 3 << " headers\n";
  return out.flush() ? 0 : 1;
} catch (const std::exception& e) {
  std::cerr << e.what() << '\n';
  return 1;
}
