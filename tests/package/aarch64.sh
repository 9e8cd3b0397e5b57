#!/bin/sh
# aarch64.sh SOURCES FOLDER FLAGS...: reads every C++ file of the folder SOURCES as a compiler for
# aarch64 does, whose char has no sign and which has none of the other processor's vectors.
set -eu
sources=$1 folder=$2
shift 2
command -v aarch64-linux-gnu-g++ > /dev/null || { echo "SKIPPED: no aarch64-linux-gnu-g++"; exit 77; }
mkdir -p "$folder"
# What all of them include is read once, which saves half of the time.
printf '#include <bs/lib/tensor.h>\n#include <algorithm>\n#include <cmath>\n#include <vector>\n' \
  > "$folder/first.h"
aarch64-linux-gnu-g++ "$@" -x c++-header "$folder/first.h" -o "$folder/first.h.gch"
printf '%s\n' "$sources"/*.cpp |
  xargs -n 4 -P "$(nproc)" aarch64-linux-gnu-g++ "$@" -fsyntax-only -include "$folder/first.h"
