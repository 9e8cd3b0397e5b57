#include <bs/c/bs.h>
#include <stdio.h>

int main(void) {
  bs_layout* layout = NULL;
  bs_tensor *a = NULL, *values = NULL;
  float ones[64];
  for (int i = 0; i < 64; ++i) ones[i] = 1;
  const int64_t shape[] = {8, 8};
  const bs_size size = {.heads = 1, .rows = 1, .cols = 1, .block = 8};
  if (bs_layout_dense(&size, 0, &layout) != BS_OK ||
      bs_tensor_from_memory(ones, BS_F32, 2, shape, &a) != BS_OK ||
      bs_sdd(a, a, layout, 0, &values) != BS_OK) {
    fprintf(stderr, "%s\n", bs_last_error());
    return 1;
  }
  bs_tensor_info info;
  bs_tensor_describe(values, &info);
  const float first = ((const float*)info.data)[0];
  printf("bs %s: %g\n", bs_version(), first);
  bs_tensor_free(values);
  bs_tensor_free(a);
  bs_layout_free(layout);
  return first == 8 ? 0 : 1;
}
