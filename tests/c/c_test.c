/* The C interface from C, against naive loops; gradients against differences of the forward. */
#include <bs/c/bs.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { block = 8, rows = 3, cols = 2, inner = 5, height = rows * block, width = cols * block };

static int failures = 0;
static void check(int holds, const char* what, int line) {
  if (holds) return;
  ++failures;
  printf("c_test.c:%d: %s (last error: %s)\n", line, what, bs_last_error());
}
#define CHECK(x) check((x) != 0, #x, __LINE__)
#define OK(call) check((call) == BS_OK, #call, __LINE__)
/* Fails, and says something that names the values. */
#define REFUSED(call, text) \
  check((call) == BS_ERROR && strstr(bs_last_error(), text), #call, __LINE__)

/* Numbers in [-1, 1), the same in each run. */
static double number(void) {
  static unsigned state = 1;
  state = state * 1664525U + 1013904223U;
  return (double)(state >> 8) / (1 << 23) - 1;
}

static double* numbers(int64_t count) {
  double* values = malloc(sizeof(double) * (size_t)count);
  for (int64_t i = 0; i < count; ++i) values[i] = number();
  return values;
}

static bs_tensor* tensor(double* values, int rank, const int64_t* shape) {
  bs_tensor* t = NULL;
  OK(bs_tensor_from_memory(values, BS_F64, rank, shape, &t));
  return t;
}
#define TENSOR(values, ...)                                                 \
  tensor(values, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), \
         (int64_t[]){__VA_ARGS__})

static const double* values_of(const bs_tensor* t) {
  bs_tensor_info info;
  OK(bs_tensor_describe(t, &info));
  CHECK(info.dtype == BS_F64 && info.cuda_device == -1);
  return info.data;
}

static double inner_product(const double* a, const double* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

static bs_layout* some_layout(void) {
  static uint8_t kept[rows * cols] = {1, 0, 1, 1, 0, 1};
  bs_tensor* mask = NULL;
  bs_layout* layout = NULL;
  OK(bs_tensor_from_memory(kept, BS_U8, 2, (int64_t[]){rows, cols}, &mask));
  OK(bs_layout_from_mask(mask, block, &layout));
  bs_tensor_free(mask);
  return layout;
}

/* Blocks of a (height x inner) times b (inner x width), and their gradients: as each is linear in
   its operand, <dc, sdd(a, b)> = <da, a> = <db, b>. */
static void products(void) {
  static const int at[4][2] = {{0, 0}, {1, 0}, {1, 1}, {2, 1}};
  double *av = numbers(height * inner), *bv = numbers(inner * width);
  double* dv = numbers(4 * block * block);
  bs_layout* layout = some_layout();
  bs_tensor *a = TENSOR(av, height, inner), *b = TENSOR(bv, inner, width);
  bs_tensor *d = TENSOR(dv, 4, block, block), *s = NULL, *da = NULL, *db = NULL;
  OK(bs_sdd(a, b, layout, 0, &s));
  const double* sv = values_of(s);
  for (int n = 0; n < 4; ++n)
    for (int i = 0; i < block; ++i)
      for (int j = 0; j < block; ++j) {
        double sum = 0;
        for (int k = 0; k < inner; ++k)
          sum += av[(at[n][0] * block + i) * inner + k] * bv[k * width + at[n][1] * block + j];
        CHECK(fabs(sum - sv[(n * block + i) * block + j]) < 1e-12);
      }
  OK(bs_sdd_backward(a, b, layout, 0, d, &da, &db));
  const double whole = inner_product(dv, sv, 4 * block * block);
  CHECK(fabs(whole - inner_product(values_of(da), av, height * inner)) < 1e-11);
  CHECK(fabs(whole - inner_product(values_of(db), bv, inner * width)) < 1e-11);
  bs_tensor_free(da);
  bs_tensor_free(db);

  /* dsd and dds against the dense matrix. */
  bs_tensor *dense = NULL, *again = NULL, *c = NULL, *e = NULL, *ds = NULL;
  double* xv = numbers(width * inner);
  bs_tensor* x = TENSOR(xv, width, inner);
  OK(bs_to_dense(d, layout, &dense));
  const double* m = values_of(dense);
  OK(bs_to_sparse(dense, layout, &again));
  CHECK(memcmp(values_of(again), dv, sizeof(double) * 4 * block * block) == 0);
  OK(bs_dsd(d, layout, x, 0, &c));
  OK(bs_dds(x, d, layout, BS_TRANSPOSE_A | BS_TRANSPOSE_B, &e)); /* x' m' = (m x)' */
  for (int i = 0; i < height; ++i)
    for (int j = 0; j < inner; ++j) {
      double sum = 0;
      for (int k = 0; k < width; ++k) sum += m[i * width + k] * xv[k * inner + j];
      CHECK(fabs(sum - values_of(c)[i * inner + j]) < 1e-12);
      CHECK(fabs(sum - values_of(e)[j * height + i]) < 1e-12);
    }
  OK(bs_dsd_backward(d, layout, x, 0, c, &ds, NULL));
  CHECK(fabs(inner_product(values_of(c), values_of(c), height * inner) -
             inner_product(values_of(ds), dv, 4 * block * block)) < 1e-10);
  bs_tensor_free(ds);
  OK(bs_dds_backward(x, d, layout, BS_TRANSPOSE_A | BS_TRANSPOSE_B, e, NULL, &ds));
  CHECK(fabs(inner_product(values_of(e), values_of(e), height * inner) -
             inner_product(values_of(ds), dv, 4 * block * block)) < 1e-10);

  REFUSED(bs_sdd(b, a, layout, 0, &da), "sdd");
  CHECK(da == NULL);
  REFUSED(bs_sdd(NULL, b, layout, 0, &da), "bs_sdd: a is NULL");
  REFUSED(bs_sdd(a, b, NULL, 0, &da), "layout is NULL");
  REFUSED(bs_sdd(a, b, layout, 4, &da), "transpose 4");
  REFUSED(bs_sdd(a, b, layout, 0, NULL), "the place of a result is NULL");
  bs_tensor* all[] = {a, b, d, s, dense, again, c, e, ds, x};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) bs_tensor_free(all[i]);
  bs_layout_free(layout);
  free(av), free(bv), free(dv), free(xv);
}

/* Attention over every block is softmax(q k' / sqrt(e)) v; its gradient by differences. */
static void attention(void) {
  enum { n = 16, e = 4, count = n * e };
  double *qv = numbers(count), *kv = numbers(count), *vv = numbers(count), *dv = numbers(count);
  bs_tensor *q = TENSOR(qv, 1, 1, n, e), *k = TENSOR(kv, 1, 1, n, e), *v = TENSOR(vv, 1, 1, n, e);
  bs_tensor *dout = TENSOR(dv, 1, 1, n, e), *out = NULL, *dq = NULL, *dk = NULL, *dvalue = NULL;
  bs_layout* layout = NULL;
  bs_attention* saved = NULL;
  const bs_size size = {1, 2, 2, block};
  OK(bs_layout_dense(&size, 0, &layout));
  OK(bs_sparse_attention(q, k, v, layout, NULL, &out, &saved));
  for (int i = 0; i < n; ++i) {
    double weight[n], total = 0, sum[e] = {0};
    for (int j = 0; j < n; ++j)
      total += weight[j] = exp(inner_product(qv + i * e, kv + j * e, e) / sqrt(e));
    for (int j = 0; j < n; ++j)
      for (int c = 0; c < e; ++c) sum[c] += weight[j] / total * vv[j * e + c];
    for (int c = 0; c < e; ++c) CHECK(fabs(sum[c] - values_of(out)[i * e + c]) < 1e-12);
  }
  OK(bs_sparse_attention_backward(saved, dout, &dq, &dk, &dvalue));
  double slope[2];
  for (int side = 0; side < 2; ++side) {
    bs_tensor* moved = NULL;
    qv[7] += side == 0 ? 1e-5 : -2e-5;
    OK(bs_sparse_attention(q, k, v, layout, NULL, &moved, NULL));
    slope[side] = inner_product(values_of(moved), dv, count);
    bs_tensor_free(moved);
  }
  CHECK(fabs((slope[0] - slope[1]) / 2e-5 - values_of(dq)[7]) < 1e-8);
  CHECK(fabs(inner_product(values_of(out), dv, count) -
             inner_product(values_of(dvalue), vv, count)) < 1e-11);
  bs_tensor* none = NULL;
  REFUSED(bs_sparse_attention_backward(NULL, dout, &none, NULL, NULL), "saved is NULL");
  bs_tensor* all[] = {q, k, v, dout, out, dq, dk, dvalue};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) bs_tensor_free(all[i]);
  bs_attention_free(saved);
  bs_layout_free(layout);
  free(qv), free(kv), free(vv), free(dv);
}

static double sigmoid(double z) { return 1 / (1 + exp(-z)); }

/* One step of one cell, and the initial state's gradient through c. */
static void lstm(void) {
  double x0 = .3, ih[4] = {.5, -.2, .7, .1}, hh[4] = {.4, .3, -.6, .2}, h = .25, c = -.5, one = 1;
  bs_tensor *x = TENSOR(&x0, 1, 1, 1), *dy = TENSOR(&one, 1, 1, 1), *dx = NULL;
  bs_lstm_direction d = {TENSOR(ih, 4, 1), TENSOR(hh, 4, 1), NULL, NULL, NULL, NULL,
                         TENSOR(&h, 1, 1), TENSOR(&c, 1, 1), 0};
  bs_lstm_states states;
  bs_lstm* saved = NULL;
  OK(bs_lstm_forward(x, &d, 1, NULL, &states, &saved));
  double z[4];
  for (int g = 0; g < 4; ++g) z[g] = ih[g] * x0 + hh[g] * h;
  const double cell = sigmoid(z[1]) * c + sigmoid(z[0]) * tanh(z[2]);
  CHECK(fabs(values_of(states.y)[0] - sigmoid(z[3]) * tanh(cell)) < 1e-15);
  CHECK(fabs(values_of(states.c_n)[0] - cell) < 1e-15);
  bs_lstm_states upstream = {dy, NULL, NULL};
  bs_lstm_gradients g;
  OK(bs_lstm_backward(saved, &upstream, &dx, &g));
  const double dcell = sigmoid(z[3]) * (1 - tanh(cell) * tanh(cell));
  CHECK(fabs(values_of(g.c0)[0] - dcell * sigmoid(z[1])) < 1e-15);
  CHECK(g.bias_ih == NULL && g.hr == NULL);
  CHECK(fabs(values_of(g.ih)[2] * x0 -
             dcell * sigmoid(z[0]) * (1 - tanh(z[2]) * tanh(z[2])) * x0 * x0) < 1e-15);
  REFUSED(bs_lstm_forward(x, &d, 0, NULL, &states, NULL), "0 directions");
  const bs_tensor* all[] = {x, dy, dx, d.ih, d.hh, d.h0, d.c0, g.ih, g.hh, g.h0, g.c0};
  bs_lstm_free(saved);
  bs_lstm_direction missing = d;
  missing.hh = NULL;
  bs_lstm_states none;
  REFUSED(bs_lstm_forward(x, &missing, 1, NULL, &none, NULL), "hh is NULL");
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) bs_tensor_free((bs_tensor*)all[i]);
  bs_tensor_free(states.y), bs_tensor_free(states.h_n), bs_tensor_free(states.c_n);
}

/* Equal logits: each path of 2 frames and 1 label has probability 3^-3, and there are 2 paths. */
static void transducer(void) {
  double logits[2 * 2 * 3] = {0}, one = 1;
  int64_t label = 1, frames = 2, labels = 1;
  bs_tensor *l = TENSOR(logits, 1, 2, 2, 3), *d = tensor(&one, 0, NULL);
  bs_tensor *t = NULL, *fl = NULL, *ul = NULL, *loss = NULL, *dl = NULL;
  OK(bs_tensor_from_memory(&label, BS_I64, 2, (int64_t[]){1, 1}, &t));
  OK(bs_tensor_from_memory(&frames, BS_I64, 1, (int64_t[]){1}, &fl));
  OK(bs_tensor_from_memory(&labels, BS_I64, 1, (int64_t[]){1}, &ul));
  const bs_transducer_options options = {.blank = 0, .reduction = BS_MEAN};
  bs_transducer* saved = NULL;
  OK(bs_transducer_loss(l, t, fl, ul, &options, &loss, &saved));
  CHECK(fabs(values_of(loss)[0] - log(27. / 2)) < 1e-14);
  OK(bs_transducer_loss_backward(saved, d, &dl));
  const double expected[] = {-1. / 6, -1. / 6, 1. / 3}; /* half of the paths emit at (0, 0) */
  for (int i = 0; i < 3; ++i) CHECK(fabs(values_of(dl)[i] - expected[i]) < 1e-14);
  const bs_transducer_options odd = {.reduction = 3};
  bs_tensor* none = NULL;
  REFUSED(bs_transducer_loss(l, t, fl, ul, &odd, &none, NULL), "reduction 3");
  bs_tensor* all[] = {l, d, t, fl, ul, loss, dl};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) bs_tensor_free(all[i]);
  bs_transducer_free(saved);
}

/* A convolution, and the same weight as blocks. */
static void convolution(void) {
  enum { side = 4, places = 9, pixels = block * side * side };
  double *xv = numbers(pixels), *wv = numbers(block * block * places), ones[places];
  for (int i = 0; i < places; ++i) ones[i] = 1;
  double* turned = malloc(sizeof(double) * block * block * places); /* [place, k, c] */
  for (int k = 0; k < block; ++k)
    for (int c = 0; c < block; ++c)
      for (int p = 0; p < places; ++p)
        turned[(p * block + k) * block + c] = wv[(k * block + c) * places + p];
  bs_tensor *x = TENSOR(xv, 1, block, side, side), *w = TENSOR(wv, block, block, 3, 3);
  bs_tensor *blocks = TENSOR(turned, places, block, block), *mask = TENSOR(ones, 1, 1, 3, 3);
  bs_tensor *y = NULL, *z = NULL, *dw = NULL, *dbias = NULL, *dv = NULL;
  bs_layout* layout = NULL;
  const bs_conv2d_options options = {.padding = {1, 1, 1, 1}};
  OK(bs_conv2d(x, w, NULL, &options, &y));
  double corner = 0;
  for (int c = 0; c < block; ++c)
    for (int r = 1; r < 3; ++r)
      for (int s = 1; s < 3; ++s)
        corner += xv[(c * side + r - 1) * side + s - 1] * wv[c * places + r * 3 + s];
  CHECK(fabs(values_of(y)[0] - corner) < 1e-12);
  OK(bs_conv2d_layout(mask, block, &layout));
  const bs_conv2d_blocks weight = {blocks, layout, 3, 3};
  OK(bs_block_sparse_conv2d(x, &weight, NULL, &options, &z));
  for (int i = 0; i < pixels; ++i) CHECK(fabs(values_of(y)[i] - values_of(z)[i]) < 1e-12);
  OK(bs_conv2d_backward(x, w, &options, y, NULL, &dw, &dbias));
  OK(bs_block_sparse_conv2d_backward(x, &weight, &options, y, NULL, &dv, NULL));
  const double whole = inner_product(values_of(y), values_of(y), pixels);
  CHECK(fabs(whole - inner_product(values_of(dw), wv, block * block * places)) < 1e-9);
  CHECK(fabs(whole - inner_product(values_of(dv), turned, block * block * places)) < 1e-9);
  double sum = 0;
  for (int i = 0; i < side * side; ++i) sum += values_of(y)[i];
  CHECK(fabs(sum - values_of(dbias)[0]) < 1e-12);
  bs_tensor* all[] = {x, w, blocks, mask, y, z, dw, dbias, dv};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) bs_tensor_free(all[i]);
  bs_layout_free(layout);
  free(xv), free(wv), free(turned);
}

static void described_products(void) {
  const bs_gemm_matrix rows = {BS_ELEMENT_F32, 0, 1}, columns = {BS_ELEMENT_F32, 1, 1};
  bs_gemm_description d = {.threadblock = {64, 64, 8},
                           .stages = 3,
                           .warps = {2, 2, 1},
                           .instruction = {1, 1, 1},
                           .math_a = BS_ELEMENT_F32,
                           .math_b = BS_ELEMENT_F32,
                           .accumulator = BS_ELEMENT_F32,
                           .op_class = BS_SIMT,
                           .a = rows,
                           .b = columns,
                           .d = rows,
                           .c_element = BS_ELEMENT_F32,
                           .bias_element = BS_ELEMENT_F32,
                           .activation = BS_RELU};
  float numbers[8] = {1, 2, 3, 0, 4, 5, 6, 0}, result[4], bias[2] = {0, -40};
  bs_tensor_info info = {BS_F32, -1, 2, {2, 3}, {4, 1}, numbers};
  bs_tensor *a = NULL, *b = NULL, *c = NULL, *v = NULL;
  OK(bs_tensor_from_pointer(&info, &a));
  info = (bs_tensor_info){BS_F32, -1, 2, {3, 2}, {1, 4}, numbers};
  OK(bs_tensor_from_pointer(&info, &b));
  OK(bs_tensor_from_memory(result, BS_F32, 2, (int64_t[]){2, 2}, &c));
  OK(bs_tensor_from_memory(bias, BS_F32, 1, (int64_t[]){2}, &v));
  bs_gemm* gemm = NULL;
  OK(bs_gemm_make(&d, &gemm));
  bs_gemm_arguments arguments = {a, b, NULL, v, c, 1, 0, 0};
  OK(bs_gemm_run(gemm, &arguments));
  CHECK(result[0] == 14 && result[1] == 0 && result[2] == 32 && result[3] == 37);
  arguments = (bs_gemm_arguments){a, b, c, v, c, 1, 2, 1}; /* C may be D */
  OK(bs_gemm_run(gemm, &arguments));
  CHECK(result[0] == 42 && result[1] == 0 && result[2] == 96 && result[3] == 111);
  arguments.bias = NULL;
  REFUSED(bs_gemm_run(gemm, &arguments), "bias");
  arguments = (bs_gemm_arguments){a, a, NULL, v, c, 1, 0, 0};
  REFUSED(bs_gemm_run(gemm, &arguments), "inner dimensions differ");
  REFUSED(bs_gemm_run(NULL, &arguments), "gemm is NULL");
  REFUSED(bs_gemm_run(gemm, NULL), "arguments is NULL");
  bs_gemm_free(gemm);
  d.op_class = 3;
  REFUSED(bs_gemm_make(&d, &gemm), "op_class 3");
  d.op_class = BS_SIMT, d.a.element = -1;
  REFUSED(bs_gemm_make(&d, &gemm), "a -1");
  d.a.element = BS_ELEMENT_F16;
  REFUSED(bs_gemm_make(&d, &gemm), "f16");
  REFUSED(bs_gemm_make(NULL, &gemm), "description is NULL");
  CHECK(gemm == NULL);
  bs_tensor* none = NULL;
  info.data = NULL;
  REFUSED(bs_tensor_from_pointer(&info, &none), "data is NULL");
  info.strides[1] = -1;
  REFUSED(bs_tensor_from_pointer(&info, &none), "strides");
  info.strides[1] = INT64_MAX, info.shape[1] = INT64_MAX;
  REFUSED(bs_tensor_from_pointer(&info, &none), "strides");
  info = (bs_tensor_info){9, -1, 0, {0}, {0}, numbers};
  REFUSED(bs_tensor_from_pointer(&info, &none), "dtype 9");
  bs_tensor_free(a), bs_tensor_free(b), bs_tensor_free(c), bs_tensor_free(v);
  bs_gemm_free(NULL);
}

static void patterns_and_tensors(void) {
  const bs_size size = {2, 8, 8, 16};
  bs_layout *all[8] = {NULL}, *none = NULL;
  OK(bs_layout_fixed(&size, 4, 1, 1, &all[0]));
  OK(bs_layout_strided(&size, 3, 1, &all[1]));
  OK(bs_layout_bigbird(&size, 1, 3, 1, 7, 0, &all[2]));
  OK(bs_layout_longformer(&size, 3, 0, 0, &all[3]));
  OK(bs_layout_sliding_window(&size, 3, 1, &all[4]));
  OK(bs_layout_random(&size, .25, 7, 0, &all[5]));
  OK(bs_layout_dense(&size, 1, &all[6]));
  OK(bs_layout_transpose(all[6], &all[7]));
  bs_layout_info info;
  OK(bs_layout_describe(all[7], &info));
  CHECK(info.block == 16 && info.heads == 2 && info.rows == 8 && info.nnz == 72);
  bs_tensor* mask = NULL;
  bs_tensor_info about;
  OK(bs_layout_mask(all[7], &mask));
  OK(bs_tensor_describe(mask, &about));
  CHECK(about.dtype == BS_U8 && about.rank == 3 && about.shape[2] == 8 && about.strides[1] == 8);
  struct DLManagedTensorVersioned* managed = NULL;
  bs_tensor* back = NULL;
  bs_tensor_info same;
  OK(bs_tensor_to_dlpack(mask, &managed));
  bs_tensor_free(mask);
  OK(bs_tensor_from_dlpack(managed, &back)); /* which lives on without the first handle */
  OK(bs_tensor_describe(back, &same));
  CHECK(same.data == about.data && same.shape[0] == 2);
  bs_tensor_free(back);
  REFUSED(bs_tensor_from_dlpack(NULL, &back), "NULL");
  REFUSED(bs_tensor_from_memory(NULL, BS_F32, 1, (int64_t[]){3}, &back), "data is NULL");
  REFUSED(bs_tensor_from_memory(&info, BS_F32, 9, (int64_t[]){3}, &back), "9 axes");
  REFUSED(bs_tensor_from_memory(&info, 8, 0, NULL, &back), "dtype 8");
  REFUSED(bs_tensor_from_memory(&info, BS_F32, 1, (int64_t[]){-1}, &back), "negative");
  REFUSED(bs_layout_dense(NULL, 0, &none), "size is NULL");
  REFUSED(bs_layout_fixed(&size, 4, 3, 0, &none), "fixed");
  bs_stream_scope* scope = NULL;
  CHECK(bs_cuda_device_count() > 0 || bs_stream_enter(0, NULL, &scope) == BS_ERROR);
  bs_stream_leave(scope);
  for (int i = 0; i < 8; ++i) bs_layout_free(all[i]);
  bs_tensor_free(NULL), bs_layout_free(NULL), bs_attention_free(NULL), bs_lstm_free(NULL);
  CHECK(strlen(bs_version()) >= 5);
}

int main(void) {
  CHECK(bs_last_error()[0] == '\0');
  products();
  attention();
  lstm();
  transducer();
  convolution();
  described_products();
  patterns_and_tensors();
  printf("%d failures\n", failures);
  return failures != 0;
}
