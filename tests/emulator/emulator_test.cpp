// The emulator by itself: pieces of PTX whose results the host knows. What tensor cores and tensor
// maps do, the tests of the kernels show, which compare with naive loops.
#include <bs/tests/emulator/grid.h>
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <csignal>
#include <limits>
#include <numeric>
#include <stdexcept>

using namespace bs::emulator;

namespace {

/// A module with one kernel, whose parameters are the addresses of an input and of results.
Module module_of(const std::string& body) {
  return Module(
      ".version 9.0\n.target sm_90a\n.address_size 64\n"
      ".visible .entry f(.param .u64 in, .param .u64 out) {\n"
      ".reg .pred %p<9>; .reg .b16 %rs<9>; .reg .b32 %r<19>; .reg .f32 %f<9>; .reg .b64 %rd<9>;\n"
      "ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out];\n"
      // The addresses of a thread's elements of 32 bits.
      "mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x;\n"
      "mad.lo.s32 %r4, %r2, %r3, %r1; mul.wide.u32 %rd3, %r4, 4;\n"
      "add.s64 %rd1, %rd1, %rd3; add.s64 %rd2, %rd2, %rd3;\n"
      "ld.global.b32 %r5, [%rd1]; mov.b32 %f1, %r5;\n" +
      body + "\n}\n");
}

void run_kernel(Module module, const Launch& launch, const std::vector<uint32_t>& in,
                std::vector<uint32_t>& out) {
  const std::array<const void*, 2> parameters = {in.data(), out.data()};
  run_grid(*module.kernels.at("f"), launch, reinterpret_cast<const std::byte*>(parameters.data()));
}

/// What the body leaves in %r6 of each element.
std::vector<uint32_t> run(const std::string& body, const std::vector<uint32_t>& in,
                          Launch launch = {}) {
  std::vector<uint32_t> out(in.size(), 0xabcdabcd);
  if (launch.block[0] == 1) launch.block[0] = static_cast<uint32_t>(in.size());
  run_kernel(module_of(body + "\nst.global.b32 [%rd2], %r6; ret;"), launch, in, out);
  return out;
}

uint32_t bits(float value) { return std::bit_cast<uint32_t>(value); }

std::vector<uint32_t> numbers(uint32_t count) {
  std::vector<uint32_t> all(count);
  std::iota(all.begin(), all.end(), 0U);
  return all;
}

/// Whether a child of this process that does so is ended by abort().
template <class F>
bool aborts(const F& f) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGABRT, SIG_DFL);  // doctest's handler would tell of it
    ::close(STDERR_FILENO);
    f();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

constexpr float infinity = std::numeric_limits<float>::infinity();

}  // namespace

TEST_CASE("emulator: integers wrap around, and divide as PTX says") {
  const std::vector<uint32_t> in = {0, 1, 7, 0x7fffffff, 0x80000000, 0xffffffff, 12345678};
  const auto check = [&](const std::string& body, auto expected) {
    CAPTURE(body);
    const std::vector<uint32_t> out = run(body, in);
    for (size_t i = 0; i < in.size(); ++i) CHECK(out[i] == static_cast<uint32_t>(expected(in[i])));
  };
  check("add.s32 %r6, %r5, 5;", [](uint32_t x) { return x + 5; });
  check("sub.s32 %r6, 5, %r5;", [](uint32_t x) { return 5 - x; });
  check("mul.hi.u32 %r6, %r5, -2;", [](uint32_t x) { return uint64_t{x} * 0xfffffffe >> 32; });
  check("mul.hi.s32 %r6, %r5, -2;", [](uint32_t x) {
    return static_cast<uint64_t>(int64_t{static_cast<int32_t>(x)} * -2) >> 32;
  });
  check("mul.wide.s32 %rd4, %r5, -3; cvt.u32.u64 %r6, %rd4;", [](uint32_t x) { return x * -3U; });
  check("div.s32 %r6, %r5, -1;", [](uint32_t x) { return 0 - x; });
  check("div.u32 %r6, 100, %r5;", [](uint32_t x) { return x == 0 ? ~0U : 100 / x; });
  check("rem.u32 %r6, %r5, 10;", [](uint32_t x) { return x % 10; });
  check("add.cc.u32 %r7, %r5, 1; addc.u32 %r6, 0, 0;", [](uint32_t x) { return x == ~0U; });
  check("sub.cc.u32 %r7, %r5, 2; subc.u32 %r6, 0, 0;", [](uint32_t x) { return x < 2 ? ~0U : 0; });
  check("mad.lo.cc.u32 %r7, %r5, 3, 2; madc.hi.u32 %r6, %r5, 3, 1;",
        [](uint32_t x) { return ((uint64_t{x} * 3 + 2) >> 32) + 1; });
  check("abs.s32 %r6, %r5;", [](uint32_t x) { return static_cast<int32_t>(x) < 0 ? 0 - x : x; });
  check("setp.lt.s32 %p1, %r5, 1; selp.b32 %r6, 3, 4, %p1;",
        [](uint32_t x) { return static_cast<int32_t>(x) < 1 ? 3 : 4; });
}

TEST_CASE("emulator: bits are shifted, counted and taken apart") {
  const std::vector<uint32_t> in = {0, 1, 0x80000000, 0x12345678, 0xfedcba98, 0xffffffff};
  const auto check = [&](const std::string& body, auto expected) {
    CAPTURE(body);
    const std::vector<uint32_t> out = run(body, in);
    for (size_t i = 0; i < in.size(); ++i) CHECK(out[i] == static_cast<uint32_t>(expected(in[i])));
  };
  check("shl.b32 %r6, %r5, 40;", [](uint32_t) { return 0; });
  check("shr.s32 %r6, %r5, 40;", [](uint32_t x) { return x >> 31 != 0 ? ~0U : 0U; });
  check("shr.u32 %r6, %r5, 4;", [](uint32_t x) { return x >> 4; });
  check("shf.l.wrap.b32 %r6, %r5, 1, 4;", [](uint32_t x) { return 16 | x >> 28; });
  check("bfe.u32 %r6, %r5, 4, 8;", [](uint32_t x) { return x >> 4 & 255; });
  check("bfe.s32 %r6, %r5, 24, 8;", [](uint32_t x) { return static_cast<int32_t>(x) >> 24; });
  check("bfi.b32 %r6, 5, %r5, 8, 4;", [](uint32_t x) { return (x & ~0xf00U) | 0x500; });
  check("popc.b32 %r6, %r5;", [](uint32_t x) { return std::popcount(x); });
  check("clz.b32 %r6, %r5;", [](uint32_t x) { return std::countl_zero(x); });
  check("brev.b32 %r6, %r5; brev.b32 %r6, %r6;", [](uint32_t x) { return x; });
  check("prmt.b32 %r6, %r5, 0, 0x0123;", [](uint32_t x) { return __builtin_bswap32(x); });
  check("prmt.b32 %r6, %r5, 0, 0xbbbb;", [](uint32_t x) { return x >> 31 != 0 ? ~0U : 0U; });
  const auto dot = []<class A, class B>(A, B) {
    return [](uint32_t x) {
      const int with[] = {1, 2, static_cast<B>(0x80), static_cast<B>(0xff)};
      int sum = 7;
      for (int k = 0; k < 4; ++k) sum += static_cast<A>(x >> (8 * k)) * with[k];
      return sum;
    };
  };
  check("dp4a.u32.u32 %r6, %r5, 0xff800201, 7;", dot(uint8_t{}, uint8_t{}));
  check("dp4a.u32.s32 %r6, %r5, 0xff800201, 7;", dot(uint8_t{}, int8_t{}));
  check("dp4a.s32.u32 %r6, %r5, 0xff800201, 7;", dot(int8_t{}, uint8_t{}));
  check("dp4a.s32.s32 %r6, %r5, 0xff800201, 7;", dot(int8_t{}, int8_t{}));
  check("lop3.b32 %r6, %r5, 0xff00ff00, 0x0ff00ff0, 0x96;",
        [](uint32_t x) { return x ^ 0xff00ff00 ^ 0x0ff00ff0; });
}

TEST_CASE("emulator: floats are rounded as asked, and compare with NaN as PTX says") {
  const std::vector<float> values = {0.0F, -0.0F, 1.5F, -2.5F, 1e30F, infinity, NAN, 0.1F, 300.4F};
  std::vector<uint32_t> in;
  for (const float value : values) in.push_back(bits(value));
  const auto check = [&](const std::string& body, auto expected) {
    CAPTURE(body);
    const std::vector<uint32_t> out = run(body, in);
    for (size_t i = 0; i < in.size(); ++i) {
      CAPTURE(values[i]);
      CHECK(out[i] == static_cast<uint32_t>(expected(values[i])));
    }
  };
  check("cvt.rzi.s32.f32 %r6, %f1;", [](float x) {
    return std::isnan(x) ? 0
           : x > 1e9F    ? std::numeric_limits<int32_t>::max()
                         : static_cast<int32_t>(x);
  });
  check("cvt.rni.f32.f32 %f2, %f1; setp.eq.f32 %p1, %f2, %f1; selp.b32 %r6, 1, 0, %p1;",
        [](float x) { return std::nearbyint(x) == x; });
  check("cvt.rn.bf16.f32 %rs1, %f1; cvt.f32.bf16 %f2, %rs1; mov.b32 %r6, %f2;", [](float x) {
    const uint32_t all = bits(x);
    return std::isnan(x) ? 0x7fff0000U : (all + 0x7fff + (all >> 16 & 1)) & 0xffff0000U;
  });
  check("cvt.sat.f32.f32 %f2, %f1; mov.b32 %r6, %f2;",
        [](float x) { return bits(x > 0 ? std::min(x, 1.0F) : 0.0F); });
  check("setp.geu.f32 %p1, %f1, 0f3F800000; selp.b32 %r6, 1, 0, %p1;",
        [](float x) { return !(x < 1); });
  check("setp.ne.f32 %p1, %f1, 0f3FC00000; selp.b32 %r6, 1, 0, %p1;",
        [](float x) { return !std::isnan(x) && x != 1.5F; });
  check("max.f32 %f2, %f1, 0f3F800000; mov.b32 %r6, %f2;",
        [](float x) { return bits(std::isnan(x) ? 1.0F : std::max(x, 1.0F)); });
  check("max.NaN.f32 %f2, %f1, 0f3F800000; setp.nan.f32 %p1, %f2, %f2; selp.b32 %r6, 1, 0, %p1;",
        [](float x) { return std::isnan(x); });
  check(
      "add.rm.f32 %f2, 0f3F800000, 0f33000000; add.rp.f32 %f3, 0f3F800000, 0f33000000;"
      "sub.f32 %f4, %f3, %f2; mov.b32 %r6, %f4;",
      [](float) { return bits(std::numeric_limits<float>::epsilon()); });
}

TEST_CASE("emulator: registers of 128 bits, and names that braces hide") {
  const std::vector<uint32_t> in = numbers(8);
  const std::vector<uint32_t> out =
      run(".shared .align 16 .b8 held[16]; mov.u32 %r7, held;\n"
          "cvt.u64.u32 %rd5, %r5; add.s64 %rd6, %rd5, 100; setp.eq.u32 %p1, %r5, %r5;\n"
          "{ .reg .pred %p1; .reg .b128 v; setp.ne.u32 %p1, %r5, %r5; mov.b128 v, {%rd5, %rd6};\n"
          "st.shared.b128 [%r7], v; mov.b128 v, {%rd6, %rd5}; @%p1 ld.shared.b128 v, [%r7];\n"
          "mov.b128 {%rd5, %rd6}, v; @!%p1 ld.shared.b128 v, [%r7]; mov.b128 {%rd7, %rd8}, v; }\n"
          "sub.s64 %rd7, %rd7, %rd6; sub.s64 %rd5, %rd5, %rd8; add.s64 %rd5, %rd5, %rd7;\n"
          "cvt.u32.u64 %r6, %rd5; @!%p1 mov.u32 %r6, 77;",
          in, {.block = {1, 1, 1}, .cluster = {1, 1, 1}});
  for (const uint32_t nothing : out) CHECK(nothing == 0);
}

TEST_CASE("emulator: lanes exchange, vote and agree") {
  const std::vector<uint32_t> in = numbers(64);
  const auto out = [&](const std::string& body) { return run(body, in); };
  const std::vector<uint32_t> turned = out("shfl.sync.bfly.b32 %r6, %r5, 5, 31, -1;");
  const std::vector<uint32_t> moved = out("shfl.sync.up.b32 %r6|%p1, %r5, 3, 0, -1;");
  const std::vector<uint32_t> in_eights = out("shfl.sync.idx.b32 %r6, %r5, 2, 0x181f, -1;");
  const std::vector<uint32_t> votes =
      out("and.b32 %r7, %r5, 3; setp.eq.u32 %p1, %r7, 0; vote.sync.ballot.b32 %r6, %p1, -1;");
  const std::vector<uint32_t> alike = out("and.b32 %r7, %r5, 7; match.any.sync.b32 %r6, %r7, -1;");
  const std::vector<uint32_t> sums = out("redux.sync.add.u32 %r6, %r5, -1;");
  for (uint32_t i = 0; i < 64; ++i) {
    CHECK(turned[i] == (i ^ 5));
    CHECK(moved[i] == (i % 32 < 3 ? i : i - 3));
    CHECK(in_eights[i] == i / 8 * 8 + 2);
    CHECK(votes[i] == 0x11111111);
    CHECK(alike[i] == 0x01010101U << i % 8);
    CHECK(sums[i] == (i < 32 ? 496 : 496 + 32 * 32));
  }
}

TEST_CASE("emulator: lanes that take different ways meet again") {
  const std::vector<uint32_t> in = numbers(32);
  const std::vector<uint32_t> out =
      run("mov.u32 %r6, 0; setp.lt.u32 %p1, %r5, 10; @%p1 bra LEFT;\n"
          "LOOP: add.u32 %r6, %r6, 1; setp.lt.u32 %p2, %r6, %r5; @%p2 bra LOOP; bra MEET;\n"
          "LEFT: mov.u32 %r6, 100;\n"
          "MEET: bar.warp.sync -1; shfl.sync.bfly.b32 %r6, %r6, 31, 31, -1;",
          in);
  for (uint32_t i = 0; i < 32; ++i) CHECK(out[i] == (31 - i < 10 ? 100 : 31 - i));
}

TEST_CASE("emulator: threads of a CTA wait for one another") {
  const std::vector<uint32_t> in = numbers(96);
  const std::vector<uint32_t> turned = run(
      ".shared .align 4 .b8 held[384];\n"
      "mov.u32 %r7, held; shl.b32 %r8, %r1, 2; add.u32 %r9, %r7, %r8; st.shared.u32 [%r9], %r5;\n"
      "bar.sync 0; sub.u32 %r10, 95, %r1; shl.b32 %r10, %r10, 2; add.u32 %r10, %r7, %r10;\n"
      "ld.shared.u32 %r6, [%r10];",
      in);
  for (uint32_t i = 0; i < 96; ++i) CHECK(turned[i] == 95 - i);
  const std::vector<uint32_t> counted =
      run("setp.lt.u32 %p1, %r5, 40; bar.red.popc.u32 %r6, 1, %p1;", in);
  for (const uint32_t count : counted) CHECK(count == 40);
}

TEST_CASE("emulator: CTAs of a cluster reach each other's shared memory") {
  const std::vector<uint32_t> in = numbers(64);
  Launch launch;
  launch.grid = {4, 1, 1};
  launch.block = {16, 1, 1};
  launch.cluster = {2, 1, 1};
  const std::vector<uint32_t> out = run(
      ".shared .align 4 .b8 held[64];\n"
      "mov.u32 %r7, held; shl.b32 %r8, %r1, 2; add.u32 %r9, %r7, %r8; st.shared.u32 [%r9], %r5;\n"
      "barrier.cluster.arrive; barrier.cluster.wait; mov.u32 %r10, %cluster_ctarank;\n"
      "xor.b32 %r10, %r10, 1; mapa.shared::cluster.u32 %r11, %r9, %r10;\n"
      "ld.shared::cluster.u32 %r6, [%r11]; barrier.cluster.arrive; barrier.cluster.wait;",
      in, launch);
  for (uint32_t i = 0; i < 64; ++i) CHECK(out[i] == (i ^ 16));
}

TEST_CASE("emulator: who waits for bytes goes on once they have come") {
  const std::vector<uint32_t> in = numbers(64);
  const std::vector<uint32_t> out =
      run(".shared .align 128 .b8 held[256]; .shared .align 8 .b8 barrier[8];\n"
          "mov.u32 %r7, held; mov.u32 %r8, barrier; setp.ne.u32 %p1, %r1, 0;\n"
          "@!%p1 mbarrier.init.shared::cta.b64 [%r8], 1; bar.sync 0; @%p1 bra WAIT;\n"
          "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r8], 256;\n"
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r7], [%rd1], 256, "
          "[%r8];\n"
          "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r8], 0; @!%p2 bra WAIT;\n"
          "shl.b32 %r9, %r1, 2; add.u32 %r9, %r9, %r7; ld.shared.u32 %r6, [%r9];",
          in);
  CHECK(out == in);
}

TEST_CASE("emulator: CTAs wait for those that begin after them") {
  Launch launch;
  launch.grid = {8, 1, 1};
  launch.block = {2, 1, 1};
  const std::vector<uint32_t> in(16, 0);
  std::vector<uint32_t> out(16, 0);
  run_kernel(module_of("ld.param.u64 %rd5, [out]; atom.global.add.u32 %r7, [%rd5], 1;\n"
                       "LOOP: ld.relaxed.gpu.global.u32 %r8, [%rd5];\n"
                       "setp.lt.u32 %p1, %r8, 16; @%p1 bra LOOP; ret;"),
             launch, in, out);
  CHECK(out[0] == 16);
}

TEST_CASE("emulator: what a kernel must not do ends the program") {
  const std::vector<uint32_t> in = numbers(32);
  CHECK(aborts([&] { run("add.s64 %rd1, %rd1, 2; ld.global.u32 %r6, [%rd1];", in); }));
  CHECK(aborts([&] { run("mov.u32 %r7, 4096; ld.shared.u32 %r6, [%r7];", in); }));
  CHECK(aborts([&] { run("setp.eq.u32 %p1, %r1, 0; @%p1 bar.sync 0, 64; mov.u32 %r6, 1;", in); }));
  CHECK(aborts([&] { run("trap; mov.u32 %r6, 1;", in); }));
  CHECK_FALSE(aborts([&] { run("mov.u32 %r6, 1;", in); }));
}

TEST_CASE("emulator: an instruction that it does not know is named") {
  CHECK_THROWS_WITH_AS(run("vabsdiff.u32.u32.u32 %r6, %r5, %r4, %r3;", {1}),
                       doctest::Contains("an unknown instruction, in: vabsdiff"),
                       std::runtime_error);
}
