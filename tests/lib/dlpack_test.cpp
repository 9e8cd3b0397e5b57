#include <bs/lib/dlpack.h>
#include <bs/tests/support/devices.h>
#include <bs/tests/support/reference.h>
#include <doctest/doctest.h>

#include <algorithm>

using namespace bs;
using namespace bs::test;

TEST_CASE("a tensor goes out and in without a copy") {
  for (const DType dtype : {boolean, u8, i32, i64, f16, bf16, f32, f64}) {
    const Tensor x = random_reference({3, 4}, 1, 0, 2).tensor(dtype, test_device());
    const Tensor turned = x.transpose(0, 1).slice(0, 1, 4, 2);
    const Tensor y = dlpack::from_dlpack(dlpack::to_dlpack(turned));
    const Tensor z = dlpack::from_dlpack(dlpack::to_dlpack_unversioned(turned));
    for (const Tensor& t : {y, z}) {
      CHECK(t.data() == turned.data());
      CHECK((t.dtype() == dtype && t.device() == test_device()));
      CHECK((t.shape() == turned.shape() && t.strides() == turned.strides()));
    }
    CHECK(same_bits(y, turned));
  }
}

TEST_CASE("exported memory lives until its deleter runs") {
  Tensor x = Tensor::from<float>({1, 2, 3});
  dlpack::Managed* managed = dlpack::to_dlpack(x);
  CHECK(x.use_count() == 2);
  CHECK((managed->version.major == 1 && managed->flags == 0));
  x = Tensor();
  CHECK(static_cast<float*>(managed->view.data)[2] == 3);
  managed->deleter(managed);
}

TEST_CASE("imported memory is released with the last view, and once") {
  static int released = 0;
  float values[6] = {0, 1, 2, 3, 4, 5};
  int64_t shape[2] = {2, 2};
  dlpack::Managed managed{};
  managed.version = {1, 1};
  managed.deleter = [](dlpack::Managed*) { ++released; };
  managed.view = {
      values, {dlpack::DeviceCode::cpu, 0}, 2, {dlpack::TypeCode::real, 32, 1}, shape, nullptr, 8};
  {
    const Tensor row = dlpack::from_dlpack(&managed).select(0, 1);
    CHECK(Reference::of(row).values == std::vector<double>{4, 5});
    CHECK(released == 0);
  }
  CHECK(released == 1);
  int64_t none[2] = {0, 2};
  managed.view.shape = none;
  managed.view.data = nullptr;
  CHECK(dlpack::from_dlpack(&managed).shape() == Shape{0, 2});
  CHECK(released == 2);
}

TEST_CASE("what has no tensor is refused and stays the caller's") {
  static int released = 0;
  float value = 1;
  int64_t shape[1] = {1}, strides[1] = {1};
  dlpack::Managed good{};
  good.version = {1, 0};
  good.deleter = [](dlpack::Managed*) { ++released; };
  good.view = {
      &value, {dlpack::DeviceCode::cpu, 0}, 1, {dlpack::TypeCode::real, 32, 1}, shape, strides, 0};
  dlpack::Managed m = good;
  m.version.major = 2;
  CHECK_THROWS_WITH_AS(dlpack::from_dlpack(&m), "from_dlpack: version 2.0 is not understood",
                       Error);
  m = good;
  m.flags = dlpack::Managed::read_only;
  CHECK_THROWS_WITH_AS(dlpack::from_dlpack(&m), "from_dlpack: the memory is read-only", Error);
  m = good;
  m.view.dtype.bits = 128;
  CHECK_THROWS_WITH_AS(dlpack::from_dlpack(&m),
                       "from_dlpack: elements of code 2, 128 bits and 1 lanes have no dtype",
                       Error);
  m = good;
  m.view.device.type = static_cast<dlpack::DeviceCode>(10);
  CHECK_THROWS_WITH_AS(dlpack::from_dlpack(&m), "from_dlpack: device 10 is not supported", Error);
  m = good;
  m.view.rank = 9;
  CHECK_THROWS_WITH_AS(dlpack::from_dlpack(&m), "from_dlpack: 9 axes; 8 are the most", Error);
  m = good;
  int64_t huge[8], far[8];
  std::fill_n(huge, 8, int64_t{1} << 62);
  std::fill_n(far, 8, int64_t{1} << 62);
  for (const int32_t rank : {1, 2, 8})
    for (int64_t* const steps : {static_cast<int64_t*>(nullptr), far}) {
      CAPTURE(rank);
      m.view.rank = rank;
      m.view.shape = huge;
      m.view.strides = steps;
      CHECK_THROWS_AS(dlpack::from_dlpack(&m), Error);
    }
  CHECK_THROWS_WITH_AS(dlpack::to_dlpack(Tensor()), "to_dlpack: an undefined tensor", Error);
  CHECK(released == 0);
}
