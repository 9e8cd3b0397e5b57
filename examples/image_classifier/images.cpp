#include <bs/examples/image_classifier/images.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace bs::example {
namespace {

/// Grey values are mostly 0: this brings them near mean 0 and deviation 1.
constexpr float mean_ink = 0.25F, deviation = 0.4F;

/// The image with a small affine map and noise. Pixels beyond its border are paper.
void distort(const float* from, int64_t size, std::mt19937_64& random, float* to) {
  const auto uniform = [&](float most) {
    return std::uniform_real_distribution<float>(-most, most)(random);
  };
  const float angle = uniform(0.18F), shear = uniform(0.15F);
  const float wider = std::exp(uniform(0.12F)), taller = std::exp(uniform(0.12F));
  const float right = uniform(1.5F), down = uniform(1.5F);
  const float noise = std::uniform_real_distribution<float>(0, 0.08F)(random);
  std::normal_distribution<float> normal;
  const float middle = static_cast<float>(size - 1) / 2;
  const float c = std::cos(angle), s = std::sin(angle);
  const auto ink = [&](int64_t row, int64_t column) {
    const bool inside = row >= 0 && row < size && column >= 0 && column < size;
    return inside ? from[row * size + column] : 0.0F;
  };
  for (int64_t row = 0; row < size; ++row)
    for (int64_t column = 0; column < size; ++column) {
      const float y = (static_cast<float>(row) - middle - down) * taller;
      const float x = (static_cast<float>(column) - middle - right) * wider;
      const float v = middle + c * y + s * x, u = middle - s * y + c * x + shear * y;
      const float top = std::floor(v), left = std::floor(u);
      const float a = v - top, b = u - left;
      const auto i = static_cast<int64_t>(top), j = static_cast<int64_t>(left);
      const float upper = (1 - b) * ink(i, j) + b * ink(i, j + 1);
      const float lower = (1 - b) * ink(i + 1, j) + b * ink(i + 1, j + 1);
      to[row * size + column] = (1 - a) * upper + a * lower + noise * normal(random);
    }
}

ImageBatch on_device(std::vector<float> pixels, const std::vector<int64_t>& classes, int64_t size,
                     Device device) {
  for (float& p : pixels) p = (p - mean_ink) / deviation;
  const auto n = static_cast<int64_t>(classes.size());
  return {Tensor::from(std::span<const float>(pixels), {n, 1, size, size}).to(device),
          Tensor::from(std::span<const int64_t>(classes), {n}).to(device)};
}

}  // namespace

ImageBatch images_as_they_are(const Images& images, int64_t from, int64_t to, Device device) {
  return on_device({images.image(from), images.image(to)},
                   {images.classes.begin() + from, images.classes.begin() + to}, images.size,
                   device);
}

ImageBatch training_batch(const Images& images, const Options& options, int64_t step) {
  std::mt19937_64 random(options.seed * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(step));
  const int64_t area = images.size * images.size;
  std::vector<float> pixels(static_cast<size_t>(options.batch * area));
  std::vector<int64_t> classes;
  for (int64_t i = 0; i < options.batch; ++i) {
    const auto chosen = static_cast<int64_t>(random() % static_cast<uint64_t>(images.count()));
    classes.push_back(images.classes[static_cast<size_t>(chosen)]);
    float* const to = pixels.data() + i * area;
    if (options.augment) {
      distort(images.image(chosen), images.size, random, to);
    } else {
      std::copy_n(images.image(chosen), area, to);
    }
  }
  return on_device(std::move(pixels), classes, images.size, options.device);
}

}  // namespace bs::example
