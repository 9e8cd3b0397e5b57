#include <bs/kernels/copy.h>
#include <bs/kernels/fill.h>
#include <bs/nn/checkpoint.h>
#include <bs/nn/data/loader.h>
#include <bs/nn/norm.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <bs/tests/support/scratch.h>
#include <doctest/doctest.h>

using namespace bs;
using namespace bs::test;

namespace {

using Values = std::vector<double>;

Values values(const Tensor& x) { return Reference::of(x).values; }

struct Model : nn::Module {
  Variable weight, steps;
  nn::LayerNorm norm;
  explicit Model(int64_t width = 3, DType dtype = f32)
      : norm({.width = width, .dtype = dtype, .device = test_device()}) {
    weight = register_parameter("weight", zeros({2, width}, dtype, test_device()));
    steps = register_buffer("steps", zeros({1}, i64, test_device()));
    register_module("norm", norm);
  }
};

/// Keeps one tensor a parameter.
class Momentum : public optim::Optimizer {
 public:
  explicit Momentum(const nn::Module& module) {
    for (const nn::NamedVariable& p : module.named_parameters()) {
      adopt(p);
      state_.push_back({p.name + ".momentum", optim::state_like(p.variable.data())});
    }
  }
  std::vector<optim::NamedTensor> state() const override { return state_; }

 private:
  std::vector<double*> rates() override { return {}; }
  void apply(int64_t, const GradientClip&) override {}
  std::vector<optim::NamedTensor> state_;
};

data::TextDataset text() { return data::TextDataset::from("The quick brown fox jumps."); }

struct Run {
  Model model;
  Momentum optimizer{model};
  Generator generator{5};
  data::Loader loader{text(), {.batch = 1, .context = 4}};
  optim::Ema average{model, 0.9};
  nn::TrainingState state() {
    return {.model = &model,
            .optimizer = &optimizer,
            .generator = &generator,
            .loader = &loader,
            .average = &average};
  }
};

}  // namespace

TEST_CASE("checkpoint: everything comes back in fresh objects") {
  const Scratch folder;
  const std::string path = folder / "run.safetensors";
  Run run;
  fill(run.model.weight.data(), 0.5);
  fill(run.model.norm.bias.data(), -2);
  fill(run.model.steps.data(), 12);
  fill(run.optimizer.state()[0].tensor, 0.25);
  fill(run.average.state()[0].tensor, 4);
  run.optimizer.set_steps(11);
  run.generator.next();
  run.loader.seek(9);
  nn::TrainingState state = run.state();
  state.step = 77;
  state.metadata = {{"width", "3"}, {"note", "line\nbreak \"quoted\""}};
  nn::save_checkpoint(path, state);

  Run fresh;
  const Variable weight = fresh.model.weight;
  const nn::Checkpoint checkpoint(path);
  CHECK(checkpoint.step() == 77);
  CHECK(checkpoint.metadata() == state.metadata);
  checkpoint.restore(fresh.state());
  CHECK(values(weight.data()) == Values(6, 0.5));
  CHECK(values(fresh.model.norm.weight.data()) == Values(3, 1.0));
  CHECK(values(fresh.model.norm.bias.data()) == Values(3, -2.0));
  CHECK(values(fresh.model.steps.data()) == Values{12});
  CHECK(values(fresh.optimizer.state()[0].tensor) == Values(6, 0.25));
  CHECK(values(fresh.average.state()[0].tensor) == Values(6, 4));
  CHECK(values(fresh.optimizer.state()[1].tensor) == Values(3, 0.0));
  CHECK(fresh.optimizer.steps() == 11);
  CHECK(fresh.generator.state() == run.generator.state());
  CHECK(fresh.loader.cursor() == 9);
  CHECK(folder.files() == 1);
}

TEST_CASE("checkpoint: a model alone, out of a whole run") {
  const Scratch folder;
  Run run;
  fill(run.model.weight.data(), 0.5);
  nn::save_checkpoint(folder / "run", run.state());
  Model model;
  const nn::Checkpoint checkpoint(folder / "run");
  CHECK(checkpoint.path() == folder / "run");
  // Twelve numbers of the model's, of its optimiser's and of its averages, and a count.
  CHECK(checkpoint.tensor_bytes() == 3 * 12 * 4 + 8);
  checkpoint.restore({.model = &model});
  CHECK(values(model.weight.data()) == Values(6, 0.5));
}

TEST_CASE("checkpoint: what does not fit is listed, and nothing changes") {
  const Scratch folder;
  const std::string path = folder / "run";
  Run run;
  fill(run.model.weight.data(), 0.5);
  nn::save_checkpoint(path, {.model = &run.model});

  struct Other : nn::Module {
    Variable weight = register_parameter("weight", zeros({2, 3}, f32, test_device()));
    Variable extra = register_parameter("extra", zeros({1}, f32, test_device()));
    nn::LayerNorm norm{{.width = 4, .bias = false, .device = test_device()}};
    Other() { register_module("norm", norm); }
  };
  Other other;
  Generator generator(3);
  CHECK_THROWS_WITH_AS(nn::Checkpoint(path).restore({.model = &other, .generator = &generator}),
                       ("checkpoint: " + path +
                        " does not fit:\n"
                        "  model.extra is missing in the file\n"
                        "  model.norm.weight is f32 [3] in the file, f32 [4] here\n"
                        "  model.norm.bias of the file is unknown here\n"
                        "  model.steps of the file is unknown here\n"
                        "  bs.generator_seed is missing in the file\n"
                        "  bs.generator_offset is missing in the file")
                           .c_str(),
                       Error);
  CHECK(values(other.weight.data()) == Values(6, 0.0));
  CHECK(generator.state() == RandomState{3, 0});

  Model half_model(3, f16);
  CHECK_THROWS_WITH_AS(nn::Checkpoint(path).restore({.model = &half_model}),
                       doctest::Contains("model.weight is f32 [2, 3] in the file, f16 [2, 3] here"),
                       Error);
  CHECK_THROWS_WITH_AS(nn::Checkpoint(path).restore(run.state()),
                       doctest::Contains("optimizer.weight.momentum is missing in the file"),
                       Error);
}

TEST_CASE("checkpoint: tensors of any strides come back, and one that cannot be written is told") {
  const Scratch folder;
  struct Views : nn::Module {
    Variable first = register_parameter("first", zeros({2}, f32, test_device()));
    Variable turned =
        register_parameter("turned", zeros({3, 2}, f32, test_device()).transpose(0, 1));
    Variable column = register_buffer("column", zeros({4, 2}, f32, test_device()).select(1, 1));
  };
  Views saved;
  const auto put = [](const Tensor& from, const Variable& to) {
    copy(from.to(test_device()), to.data());
  };
  put(Tensor::from<float>({1, 1}), saved.first);
  put(Tensor::from<float>({2, 2, 2, 5, 5, 5}).view({2, 3}), saved.turned);
  put(Tensor::from<float>({3, 3, 3, 3}), saved.column);
  nn::save_checkpoint(folder / "run", {.model = &saved});
  Views fresh;
  nn::Checkpoint(folder / "run").restore({.model = &fresh});
  CHECK(values(fresh.first.data()) == Values{1, 1});
  CHECK(values(fresh.turned.data()) == Values{2, 2, 2, 5, 5, 5});
  CHECK(values(fresh.column.data()) == Values(4, 3));

  Views repeated;
  repeated.column.set_data(zeros({1}, f32, test_device()).expand({4}));
  CHECK_THROWS_WITH_AS(nn::Checkpoint(folder / "run").restore({.model = &repeated}),
                       doctest::Contains("model.column repeats elements here"), Error);
  CHECK(values(repeated.first.data()) == Values{0, 0});
}

TEST_CASE("checkpoint: a loader that refuses its place leaves all as it was") {
  struct Refusing : data::Cursor {
    int64_t cursor() const override { return 3; }
    void seek(int64_t) override { throw Error("no such place"); }
  };
  const Scratch folder;
  Run run;
  Refusing loader;
  fill(run.model.weight.data(), 0.5);
  nn::TrainingState state = run.state();
  state.loader = &loader;
  nn::save_checkpoint(folder / "run", state);
  Run fresh;
  state = fresh.state();
  state.loader = &loader;
  CHECK_THROWS_WITH_AS(nn::Checkpoint(folder / "run").restore(state), "no such place", Error);
  CHECK(values(fresh.model.weight.data()) == Values(6, 0.0));
}

TEST_CASE("checkpoint: long lists of differences are cut") {
  const Scratch folder;
  struct Many : nn::Module {
    Many() {
      for (int i = 0; i < 30; ++i) register_parameter("p" + std::to_string(i), zeros({1}));
    }
  };
  const Model empty;
  Many many;
  nn::save_checkpoint(folder / "run", {});
  CHECK_THROWS_WITH_AS(nn::Checkpoint(folder / "run").restore({.model = &many}),
                       doctest::Contains("\n  and 10 more differences"), Error);
}

TEST_CASE("checkpoint: other files are refused") {
  const Scratch folder;
  save_safetensors(folder / "plain", {.tensors = {{"a", zeros({1})}}, .metadata = {}});
  CHECK_THROWS_WITH_AS(
      nn::Checkpoint(folder / "plain"),
      ("checkpoint: " + (folder / "plain") + " is no checkpoint that this version reads").c_str(),
      IoError);
  save_safetensors(folder / "stepless",
                   {.tensors = {}, .metadata = {{"bs.format", "checkpoint 1"}, {"bs.step", "x"}}});
  CHECK_THROWS_WITH_AS(nn::Checkpoint(folder / "stepless"),
                       ("checkpoint: " + (folder / "stepless") + " tells no step").c_str(),
                       IoError);
  CHECK_THROWS_AS(nn::Checkpoint(folder / "missing"), IoError);
  Run run;
  CHECK_THROWS_AS(nn::save_checkpoint(folder / "no/such/folder", run.state()), IoError);
}

TEST_CASE("checkpoint: what is saved can be read, and what could not be read is not saved") {
  const Scratch folder;
  const std::string path = folder / "a";
  Run run;
  nn::TrainingState state = run.state();
  state.metadata = {{"prompt", "na\xc3\xafve \n\t\"\\ \x01"}, {"", "empty key"}};
  nn::save_checkpoint(path, state);
  CHECK(nn::Checkpoint(path).metadata() == state.metadata);
  const std::string before = read_file(path);

  state.metadata = {{"prompt", "na\xefve"}};
  CHECK_THROWS_WITH_AS(nn::save_checkpoint(path, state),
                       "safetensors: the metadata's user.prompt is not UTF-8", Error);
  state.metadata = {{"na\xefve", ""}};
  CHECK_THROWS_AS(nn::save_checkpoint(path, state), Error);
  state.metadata.clear();
  state.step = -5;
  CHECK_THROWS_WITH_AS(nn::save_checkpoint(path, state), "save_checkpoint: step -5 is negative",
                       Error);
  CHECK(read_file(path) == before);
  CHECK(folder.files() == 1);
}

TEST_CASE("checkpoint: two tensors of one path are refused before anything is written") {
  struct Clash : nn::Module {
    nn::LayerNorm norm{{.width = 3, .device = test_device()}};
    Clash() {
      register_module("norm", norm);
      register_buffer("norm.weight", zeros({3}, f32, test_device()));
    }
  } model;
  const Scratch folder;
  CHECK_THROWS_WITH_AS(nn::save_checkpoint(folder / "a", {.model = &model}),
                       "save_checkpoint: two tensors have the path model.norm.weight", Error);
  CHECK(folder.files() == 0);
}

TEST_CASE("checkpoint: counts that no run reaches are refused before anything changes") {
  const Scratch folder;
  const std::string path = folder / "a";
  Run saved;
  fill(saved.model.weight.data(), 7);
  nn::save_checkpoint(path, saved.state());
  Safetensors content = load_safetensors(path);
  for (const char* key : {"bs.loader_cursor", "bs.optimizer_steps"})
    for (const char* value : {"18446744073709551615", "9223372036854775808", "-1", "x", ""}) {
      CAPTURE(key);
      CAPTURE(value);
      Safetensors wrong = content;
      wrong.metadata[key] = value;
      save_safetensors(path, wrong);
      Run fresh;
      const std::vector<double> weights = values(fresh.model.weight.data());
      CHECK_THROWS_AS(nn::Checkpoint(path).restore(fresh.state()), Error);
      CHECK(values(fresh.model.weight.data()) == weights);
      CHECK(fresh.loader.cursor() == 0);
    }
  for (const char* step : {"-5", "9223372036854775808"}) {
    content.metadata["bs.step"] = step;
    save_safetensors(path, content);
    CHECK_THROWS_AS(nn::Checkpoint{path}, IoError);
  }
}
