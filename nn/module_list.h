#pragma once
/** @file Owned modules of one kind, by number or by name. */
#include <bs/nn/module.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace bs::nn {

/** @brief Modules of kind M, named "0", "1", ... What is done with them is the owner's business.
 *  @code
 *  nn::ModuleList<nn::Linear> heads;
 *  for (int64_t classes : {3, 7}) heads.add({.in = 8, .out = classes});
 *  @endcode */
template <class M>
class ModuleList : public Module {
 public:
  /** @brief Makes a module of `arguments` at the end, and returns it. */
  template <class... A>
  M& emplace(A&&... arguments) {
    modules_.push_back(std::make_unique<M>(std::forward<A>(arguments)...));
    try {
      register_module(std::to_string(modules_.size() - 1), *modules_.back());
    } catch (...) {  // one that is not registered would be used, and not train
      modules_.pop_back();
      throw;
    }
    return *modules_.back();
  }
  /** @brief The same for a module that is made of options. */
  template <class N = M>
  M& add(const typename N::Options& options) {
    return emplace(options);
  }

  size_t size() const { return modules_.size(); }
  /** @throws Error for a number out of range. */
  M& operator[](size_t i) const {
    BS_CHECK(i < modules_.size(), "module list: number {} of {}", i, modules_.size());
    return *modules_[i];
  }

 private:
  std::vector<std::unique_ptr<M>> modules_;
};

/** @brief Modules of kind M by name, in the order in which they were added. */
template <class M>
class ModuleDict : public Module {
 public:
  /** @brief Makes a module of `arguments`. @throws Error for a name taken. */
  template <class... A>
  M& emplace(const std::string& name, A&&... arguments) {
    auto made = std::make_unique<M>(std::forward<A>(arguments)...);
    register_module(name, *made);
    modules_.emplace_back(name, std::move(made));
    return *modules_.back().second;
  }
  /** @brief The same for a module that is made of options. */
  template <class N = M>
  M& add(const std::string& name, const typename N::Options& options) {
    return emplace(name, options);
  }

  size_t size() const { return modules_.size(); }
  bool contains(const std::string& name) const { return find(name) != nullptr; }
  /** @throws Error for an unknown name. */
  M& operator[](const std::string& name) const {
    M* found = find(name);
    BS_CHECK(found != nullptr, "module dict: no module is named {}", name);
    return *found;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& [name, module] : modules_) all.push_back(name);
    return all;
  }

 private:
  M* find(const std::string& name) const {
    for (const auto& [known, module] : modules_)
      if (known == name) return module.get();
    return nullptr;
  }
  std::vector<std::pair<std::string, std::unique_ptr<M>>> modules_;
};

}  // namespace bs::nn
