// The code of docs/data.md; see snippets_test.cpp.
#include <bs/nn.h>
#include <bs/tests/support/scratch.h>
#include <doctest/doctest.h>

using namespace bs;

TEST_CASE("data: batches of tensors") {
  const Tensor images = rand({100, 8, 8});
  const Tensor labels = randint(0, 10, {100});

  data::DataLoader loader(data::tensor_dataset({images, labels}),
                          {.batch = 32, .shuffle = true, .seed = 1, .drop_last = true});
  for (int64_t epoch = 0; epoch < 2; ++epoch)
    for (int64_t b = 0; b < loader.batches(); ++b) {
      const std::vector<Tensor> batch = loader.next();  // images [32, 8, 8], labels [32]
      CHECK(batch[0].shape() == Shape{32, 8, 8});
    }

  CHECK(loader.epoch() == 2);
}

TEST_CASE("data: samples of your own") {
  const auto sample = [](int64_t index) {
    const Tensor x = full({3}, static_cast<double>(index));
    return std::vector<Tensor>{x, Tensor::from<int64_t>({index % 2}).view({})};
  };
  const data::Dataset numbers{1000, sample};
  const data::Dataset noisy = data::mapped(numbers, [](std::vector<Tensor> s, int64_t index) {
    Generator generator(static_cast<uint64_t>(index));  // the same noise whatever thread draws it
    s[0] = s[0] + randn({3}, f32, Device::cpu(), generator) * 0.1;
    return s;
  });
  data::DataLoader loader(noisy, {.batch = 16, .prefetch = 4, .workers = 2});

  CHECK(loader.next()[1].shape() == Shape{16});
}

TEST_CASE("data: samples of different lengths") {
  const data::Dataset words{4, [](int64_t i) { return std::vector<Tensor>{arange(i + 1)}; }};
  const auto padded = [](std::span<const std::vector<Tensor>> samples) {
    int64_t longest = 0;
    for (const auto& s : samples) longest = std::max(longest, s[0].size(0));
    std::vector<Tensor> rows, lengths;
    for (const auto& s : samples) {
      const int64_t n = s[0].size(0);
      rows.push_back(concat({s[0], zeros({longest - n}, i64)}, 0));
      lengths.push_back(Tensor::from<int64_t>({n}).view({}));
    }
    return std::vector<Tensor>{stack(rows, 0), stack(lengths, 0)};
  };
  data::DataLoader loader(words, {.batch = 4, .collate = padded});

  const auto batch = loader.next();
  CHECK(batch[0].shape() == Shape{4, 4});
  CHECK(batch[1].shape() == Shape{4});
}

TEST_CASE("data: a run that goes on") {
  const data::Dataset dataset = data::tensor_dataset({arange(50)});
  data::DataLoader first(dataset, {.batch = 8, .shuffle = true, .seed = 3});
  for (int i = 0; i < 5; ++i) first.next();
  const int64_t place = first.cursor();
  data::DataLoader second(dataset, {.batch = 8, .shuffle = true, .seed = 3});
  second.seek(place);
  CHECK(equal(first.next()[0], second.next()[0]));
}

TEST_CASE("data: arrays of NumPy") {
  const test::Scratch folder;
  const std::string path = folder / "images.npy";
  save_npy(path, randint(0, 256, {100, 8, 8}, u8));
  const Tensor images = cast(load_npy(path), f32) / 255;
  CHECK(images.shape() == Shape{100, 8, 8});
  CHECK(amax(images).item() <= 1);
}
