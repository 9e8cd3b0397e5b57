#pragma once
/** @file What all layers and models are: named parameters, buffers and children. */
#include <bs/autograd/variable.h>
#include <bs/lib/placed.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
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

/** @brief What to(dtype) makes of a buffer that floats. */
enum class BufferDType : uint8_t {
  like_parameters,  ///< the dtype asked for
  at_least_f32      ///< f32 where that has 16 bits: statistics and tables that rounding would spoil
};

/** @brief Layers of one kind that a model may have; more are a slip. */
inline constexpr int most_layers = 1 << 16;

/** @brief Features, channels or rows that a layer may have; products of two of them still fit. */
inline constexpr int64_t most_features = int64_t{1} << 31;

/** @brief Whether a layer may have n features. */
constexpr bool is_extent(int64_t n) { return n > 0 && n <= most_features; }

/** @brief Base of everything that owns parameters.
 *
 *  A module says in its constructor what it has. Whoever holds it gets all of it by name, its
 *  children's included, and can move or convert it at one stroke. How a module is called is its own
 *  business: there is no virtual forward. Children are ordinary members, and parameters and buffers
 *  are public members of Variable type.
 *
 *  A new module may take over another one: what that registered comes along, and it is left empty.
 *  Modules are neither copied nor assigned to. A child that is moved out alone has no parent.
 *  @code
 *  struct Affine : nn::Module {
 *    Variable scale;
 *    nn::Linear linear{{.in = 3, .out = 4}};
 *    Affine() {
 *      register_parameter("scale", scale, ones({3}));
 *      register_module("linear", linear);
 *    }
 *    Variable forward(const Variable& x) const { return linear.forward(x * scale); }
 *  };
 *  @endcode */
class Module : public Placed {
 public:
  Module();
  virtual ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /** @brief Parameters of this module in the order of their registration, then of its children in
   *  theirs. One that is at several places (tied weights) comes once, first name.
   *  @throws Error when two have the same path: "a.b" here, and b in a child a. Also when a member
   *  names another variable than it registered, see register_parameter. */
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
  /** @brief Converts all floating parameters and buffers, with their gradients. Buffers that were
   *  registered as BufferDType::at_least_f32 become f32 for bf16 and f16: running statistics and
   *  ALiBi slopes are such. */
  void to(DType dtype);
  void zero_grad() const;

 protected:
  /** @brief For the move constructor that a derived class has by itself. */
  Module(Module&& other) noexcept;
  /** @brief Makes `member` a parameter of `data`. What the member names counts from then on, so
   * that `a.weight = b.weight` ties two modules. An undefined tensor stands for an option not
   * taken.
   *  @param[in] member of this object, or living as long
   *  @throws Error for a name taken or empty, or a dtype that is not floating. */
  void register_parameter(const std::string& name, Variable& member, Tensor data);
  /** @brief The same for a tensor that is not learnt. */
  void register_buffer(const std::string& name, Variable& member, Tensor data,
                       BufferDType dtype = BufferDType::like_parameters);
  /** @brief The same without knowing the member that keeps it, such as an element of a vector. It
   *  must not be assigned to: named_parameters throws where it notices. An undefined tensor
   *  registers nothing. */
  Variable register_parameter(const std::string& name, Tensor data);
  Variable register_buffer(const std::string& name, Tensor data,
                           BufferDType dtype = BufferDType::like_parameters);
  /** @brief Takes a member, or something owned by a member, as a child.
   *  @throws Error for a name taken or empty, for a child that is this module or has it below
   *    itself, or like check_registered(child). */
  template <std::derived_from<Module> M>
  void register_module(const std::string& name, M& child) {
    check_inside(child, &child, sizeof(M));
    add_child(name, child);
  }

  /** @brief For layers that could compute without what was registered.
   *  @throws Error when another module has taken over this one. */
  void check_not_moved(const char* layer) const {
    BS_CHECK(!moved_, "{}: the layer was moved away", layer);
  }

 private:
  template <std::derived_from<Module> M>
  friend const M& check_registered(const M& module);
  friend std::string to_string(const Module& module);
  struct Entry {
    std::string name;
    Variable made;                       ///< where no member is known
    std::unique_ptr<OwnedPlace> member;  ///< or null
    bool held = false;                   ///< whether somebody else has had `made`
    BufferDType dtype = BufferDType::like_parameters;
    const Variable& variable() const;
  };
  struct Child {
    std::string name;
    std::unique_ptr<OwnedPlace> place;
    Module& module() const;
  };
  /// Looks for modules without a parent in these bytes, which `module` is the base of.
  bool has_state() const;
  static void check_inside(const Module& module, const void* object, size_t bytes);
  static std::vector<NamedVariable> current(const std::vector<Entry>& entries);
  void note_held();
  void add_child(const std::string& name, Module& child);
  bool leads_to(const Module& module) const;
  void check_name(const std::string& name) const;
  template <class F>
  void visit(const std::string& prefix, F&& f) const;

  std::vector<Entry> parameters_, buffers_;
  std::vector<Child> children_;
  bool training_ = true;
  bool moved_ = false;  ///< whether another module took over this one
};

/** @brief Finds members of `module` that have parameters or buffers and were not registered.
 * Nothing would train, move or save them. register_module asks this of every child. Ask it of the
 * whole model yourself. It sees what lies in an object of type M; what a member owns on the heap is
 * not looked at, and may stay unregistered.
 *  @return module
 *  @throws Error naming the type of the member. */
template <std::derived_from<Module> M>
const M& check_registered(const M& module) {
  Module::check_inside(module, &module, sizeof(M));
  return module;
}

/** @brief One line a parameter or buffer (name, dtype, shape) and a layer that has neither (name,
 *  type), and the parameters' elements. */
std::string to_string(const Module& module);

}  // namespace bs::nn
