#include <bs/examples/image_classifier/smoke.h>
#include <bs/examples/image_classifier/trainer.h>
#include <bs/examples/support/training.h>

#include <cstdio>
#include <random>

namespace bs::example {
namespace {

/// Two crossing strokes, a corner, a cup and a bar anywhere in the image: where ink is tells a
/// linear model little.
Images figures(int64_t count, uint64_t seed) {
  constexpr int64_t size = 12, reach = 5;
  constexpr const char* shapes[] = {
      "..#.."
      "..#.."
      "#####"
      "..#.."
      "..#..",
      "#...."
      "#...."
      "#...."
      "#...."
      "#####",
      "#...#"
      "#...#"
      "#...#"
      "#...#"
      "#####",
      "..#.."
      "..#.."
      "..#.."
      "..#.."
      "..#.."};
  std::mt19937_64 random(seed);
  Images images{.size = size, .pixels = {}, .classes = {}};
  for (int64_t i = 0; i < count; ++i) {
    const auto shape = static_cast<int64_t>(random() % 4);
    const auto top = static_cast<int64_t>(random() % (size - reach + 1));
    const auto left = static_cast<int64_t>(random() % (size - reach + 1));
    std::vector<float> pixels(size * size, 0.0F);
    for (int64_t p = 0; p < reach * reach; ++p)
      if (shapes[shape][p] == '#')
        pixels[static_cast<size_t>((top + p / reach) * size + left + p % reach)] = 1;
    images.pixels.insert(images.pixels.end(), pixels.begin(), pixels.end());
    images.classes.push_back(shape);
  }
  return images;
}

}  // namespace

void smoke(const Options& given) {
  Options options;
  options.device = given.device;
  options.dtype = given.dtype;
  options.size = 12;
  options.width = 8;
  options.batch = 32;
  options.steps = 200;
  options.learning_rate = 2e-2;
  options.prune = false;
  options.augment = false;
  const ImageData data{.train = figures(800, 1),
                       .held_out = figures(200, 2),
                       .names = {"cross", "corner", "cup", "bar"},
                       .fingerprint = "figures"};
  const auto trainer = train_and_resume<Trainer>(options, data);
  const double accuracy = trainer->held_out().accuracy;
  const double linear = linear_score(data, options.seed).accuracy;
  std::printf("held out: %.1f %%, linear model %.1f %%, %.0f %% of the blocks left\n",
              100 * accuracy, 100 * linear, 100 * trainer->density());
  BS_CHECK(accuracy > 0.9 && accuracy > linear, "smoke: learnt too little: {} right, linear {}",
           accuracy, linear);
  // Blocks go and grow, in the resumed run as in the other.
  options.model = "sparse";
  options.prune = true;
  const auto sparse = train_and_resume<Trainer>(options, data);
  const double right = sparse->held_out().accuracy;
  std::printf("block-sparse: %.1f %% with %.0f %% of the blocks\n", 100 * right,
              100 * sparse->density());
  BS_CHECK(sparse->density() < 0.15, "smoke: {} of the blocks are left", sparse->density());
  BS_CHECK(right > linear, "smoke: {} of a block-sparse network is right, linear {}", right,
           linear);
}

}  // namespace bs::example
