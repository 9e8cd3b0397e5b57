#include <bs/nn/module.h>
