#!/bin/sh
# aarch64.sh ROOT FOLDER FLAGS...: reads every C++ file of the library under ROOT, but for those of
# CUDA, as a compiler for aarch64 does, whose char has no sign and which has none of the other
# processor's vectors. It takes 100 s of a core.
set -eu
root=$1 folder=$2
shift 2
command -v aarch64-linux-gnu-g++ > /dev/null || { echo "SKIPPED: no aarch64-linux-gnu-g++"; exit 77; }
mkdir -p "$folder"
# What most of them include is read once, which saves half of the time.
printf '#include <%s>\n' bs/kernels/dispatch.h algorithm cmath functional map vector \
  > "$folder/first.h"
set -- "$@" -DBS_FRONT_DOOR=1 '-DBS_CPU_ARCH="aarch64"'
aarch64-linux-gnu-g++ "$@" -x c++-header "$folder/first.h" -o "$folder/first.h.gch"
cd "$root"
find lib kernels autograd nn c -name '*.cpp' ! -path '*/cuda/*' |
  xargs -n 8 -P "$(nproc)" aarch64-linux-gnu-g++ "$@" -fsyntax-only -include "$folder/first.h"
