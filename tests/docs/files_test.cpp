// The code of docs/files.md; see snippets_test.cpp.
#include <bs/nn.h>
#include <bs/tests/support/scratch.h>
#include <doctest/doctest.h>

using namespace bs;

TEST_CASE("files: weights") {
  const test::Scratch folder;
  const std::string path = folder / "model.safetensors";
  nn::Sequential model;
  model.add<nn::Linear>({.in = 4, .out = 2});
  nn::Sequential other;
  other.add<nn::Linear>({.in = 4, .out = 2});

  save_safetensors(path, {nn::state_dict(model), {{"made by", "a test"}}});
  nn::load_state_dict(other, load_safetensors(path).tensors);

  CHECK(equal(other.parameters()[0].data(), model.parameters()[0].data()));
  nn::init::zeros(other.parameters()[0].data());

  nn::load_state_dict(other, map_safetensors(path).tensors);

  CHECK(equal(other.parameters()[0].data(), model.parameters()[0].data()));
}

TEST_CASE("files: a part of another model") {
  nn::Linear head({.in = 4, .out = 2});
  nn::StateDict state = nn::state_dict(nn::Linear({.in = 4, .out = 2}), "model.head.");
  state["model.body.weight"] = zeros({3});

  const nn::LoadReport report =
      nn::load_state_dict(head, state, {.strict = false, .prefix = "model.head."});
  for (const std::string& name : report.missing) std::printf("not in the file: %s\n", name.c_str());

  CHECK((report.missing.empty() && report.unexpected.empty()));
}

TEST_CASE("files: memory of another library") {
  std::vector<float> theirs = {1, 2, 3, 4, 5, 6};
  const Tensor x = Tensor::from_blob(theirs.data(), {2, 3}, f32);  // no copy: keep `theirs` alive
  const double total = sum(x).item();
  CHECK(total == 21);

  dlpack::Managed* managed = dlpack::to_dlpack(x);   // hand this pointer to the other library
  const Tensor same = dlpack::from_dlpack(managed);  // and take one of theirs
  CHECK(same.data() == x.data());
}
