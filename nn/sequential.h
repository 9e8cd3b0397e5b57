#pragma once
/** @file Layers of any kind one after the other. */
#include <bs/nn/module.h>

#include <functional>
#include <memory>
#include <utility>

namespace bs::nn {

/** @brief An owned layer whose kind only its maker knows: any module with
 *  `Variable forward(const Variable&)`. Making one throws like check_registered(). */
class Layer {
 public:
  /** @brief Makes a layer of kind M, as in Layer::make<Linear>({.in = 3, .out = 4}). */
  template <class M>
  static Layer make(const typename M::Options& options) {
    return Layer(std::make_unique<M>(options));
  }
  template <class M>
  static Layer make() {
    return Layer(std::make_unique<M>());
  }

  template <class M>
  explicit Layer(std::unique_ptr<M> module)
      : forward_([m = module.get()](const Variable& x) { return m->forward(x); }) {
    if (module) check_registered(*module);  // here alone is the kind known
    module_ = std::move(module);
  }

  Variable forward(const Variable& x) const {
    check_owned();
    return forward_(x);
  }
  Module& module() const {
    check_owned();
    return *module_;
  }

 private:
  void check_owned() const { BS_CHECK(module_ != nullptr, "layer: it was moved away"); }
  std::function<Variable(const Variable&)> forward_;
  std::unique_ptr<Module> module_;
};

/** @brief Applies its layers in order. They are named "0", "1", ...
 *  @code
 *  nn::Sequential model;
 *  model.add<nn::Linear>({.in = 2, .out = 8});
 *  model.add<nn::Tanh>();
 *  model.add<nn::Linear>({.in = 8, .out = 1});
 *  @endcode */
class Sequential : public Module {
 public:
  /** @brief Appends a layer of kind M and returns it.
   *  @throws Error like check_registered(); the layers are then those of before. */
  template <class M>
  M& add(const typename M::Options& options) {
    return static_cast<M&>(append(Layer::make<M>(options)));
  }
  template <class M>
  M& add() {
    return static_cast<M&>(append(Layer::make<M>()));
  }

  size_t size() const { return layers_.size(); }
  Variable forward(Variable x) const {
    check_not_moved("sequential");
    for (const Layer& layer : layers_) x = layer.forward(x);
    return x;
  }

 private:
  Module& append(Layer layer) {
    layers_.push_back(std::move(layer));
    try {
      register_module(std::to_string(layers_.size() - 1), layers_.back().module());
    } catch (...) {  // one that is not registered would be applied, and not train
      layers_.pop_back();
      throw;
    }
    return layers_.back().module();
  }
  std::vector<Layer> layers_;
};

}  // namespace bs::nn
