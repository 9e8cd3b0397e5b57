#pragma once
/** @file A module of PTX: its kernels, functions and variables. PTX ISA 9.0. */
#include <bs/tests/emulator/program.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bs::emulator {

/** @brief Of a kernel or function. */
struct Parameter {
  std::string name;
  size_t offset = 0, bytes = 0;
};

struct Module;

/** @brief A kernel, or a function that kernels call. */
struct Kernel {
  std::string name;
  Module* module = nullptr;
  bool is_function = false;
  std::vector<Parameter> parameters;
  std::optional<Parameter> result;  ///< a function's
  size_t parameter_bytes = 0;
  std::string_view body;
  std::array<uint32_t, 3> cluster{};  ///< 0 where the launch says it
  int most_threads = 1024;
  int allowed_shared = 0;  ///< bytes that the host allowed to be dynamic

  /** @brief Decoded when it is first asked for.
   *  @throws std::runtime_error for instructions that are not known. */
  const Program& program();

 private:
  std::unique_ptr<Program> program_;
};

struct Variable {
  std::string name;
  size_t alignment = 1, bytes = 0;
  bool is_shared = false, is_dynamic = false;  ///< dynamic: what a launch gives
  std::byte* data = nullptr;
};

/** @brief Lives until the program ends, as what the driver has loaded does. */
struct Module {
  /** @throws std::runtime_error where the text is no PTX. */
  explicit Module(std::string text);
  Module(const Module&) = delete;  // kernels know where it lies
  Module& operator=(const Module&) = delete;

  std::string text;
  std::map<std::string, std::unique_ptr<Kernel>, std::less<>> kernels;
  std::map<std::string, Variable, std::less<>> variables;
};

}  // namespace bs::emulator
