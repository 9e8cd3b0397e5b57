#pragma once
/** @file What all layers and models are: named parameters, buffers and children. */
#include <bs/autograd/variable.h>

#include <string>
#include <vector>

namespace bs::nn {

/** @brief A variable and the path to it, such as "blocks.0.attention.qkv.weight". */
struct NamedVariable {
  std::string name;
  Variable variable;
};

/** @brief While it lives, modules compute for this thread as after eval(), whatever train() said.
 *  Nothing of a module changes: other threads may train or use it meanwhile. */
class EvalMode {
 public:
  EvalMode();
  ~EvalMode();
  EvalMode(const EvalMode&) = delete;
  EvalMode& operator=(const EvalMode&) = delete;

 private:
  bool previous_;
};

/** @brief Base of everything that owns parameters.
 *
 *  A module says in its constructor what it has; whoever holds it gets all of it by name, its
 *  children's included, and can move or convert it at one stroke. How a module is called is its own
 *  business: there is no virtual forward. Children are ordinary members, and parameters and buffers
 *  are public members of Variable type.
 *  @code
 *  struct Affine : nn::Module {
 *    Variable scale = register_parameter("scale", ones({3}));
 *    nn::Linear linear{{.in = 3, .out = 4}};
 *    Affine() { register_module("linear", linear); }
 *    Variable forward(const Variable& x) const { return linear.forward(x * scale); }
 *  };
 *  @endcode */
class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /** @brief Parameters of this module in the order of their registration, then of its children in
   *  theirs. One that is registered at several places (tied weights) comes once, first name.
   *  @throws Error when two have the same path: "a.b" here, and b in a child a. */
  std::vector<NamedVariable> named_parameters() const;
  std::vector<Variable> parameters() const;
  /** @brief Tensors that belong to the model's state but are not learnt, in the same order. */
  std::vector<NamedVariable> named_buffers() const;
  /** @brief Elements of all parameters. */
  int64_t parameter_count() const;

  /** @brief Switches this module and all below to training or to use, which dropout looks at. */
  void train(bool on = true);
  void eval() { train(false); }
  /** @brief What train() said; false in the scope of an EvalMode of this thread. */
  bool training() const;

  /** @brief Moves all parameters and buffers, with their gradients. Optimisers made before hold on
   *  to what they made for the old ones: move first. */
  void to(Device device);
  /** @brief Converts all floating parameters and buffers, with their gradients. */
  void to(DType dtype);
  void zero_grad() const;

 protected:
  /** @brief Makes a parameter of `data`, to be kept in a member. An undefined tensor, for an option
   *  not taken, gives an undefined variable and registers nothing.
   *  @throws Error for a name taken or empty, or a dtype that is not floating. */
  Variable register_parameter(const std::string& name, Tensor data);
  /** @brief The same for a tensor that is not learnt. */
  Variable register_buffer(const std::string& name, Tensor data);
  /** @brief Takes a member, or something owned by a member, as a child. @throws Error for a name
   *  taken or empty. */
  void register_module(const std::string& name, Module& child);

 private:
  struct Child {
    std::string name;
    Module* module;
  };
  void check_name(const std::string& name) const;
  template <class F>
  void visit(const std::string& prefix, F&& f) const;
  template <class F>
  void convert(F&& f);

  std::vector<NamedVariable> parameters_, buffers_;
  std::vector<Child> children_;
  bool training_ = true;
};

/** @brief One line a parameter or buffer (name, dtype, shape), and the parameters' elements. */
std::string to_string(const Module& module);

}  // namespace bs::nn
