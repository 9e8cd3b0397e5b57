#include "levels.h"

int plain_level_of_header() { return inlined(); }
