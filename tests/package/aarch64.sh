#!/bin/sh
# aarch64.sh ROOT FOLDER FLAGS...: reads every C++ file of the library under ROOT, but for those of
# CUDA, as a compiler for aarch64 does, whose char has no sign and which has none of the other
# processor's vectors. In groups, as BS_UNITY makes them, they take half as long.
set -eu
root=$1 folder=$2
shift 2
command -v aarch64-linux-gnu-g++ > /dev/null || { echo "SKIPPED: no aarch64-linux-gnu-g++"; exit 77; }
rm -rf "$folder"
mkdir -p "$folder"
cd "$root"
# shellcheck disable=SC2046  # file names are words
awk -v size=20 -f cmake/unity.awk $(find lib kernels autograd nn c -name '*.h') -- \
  $(find lib kernels autograd nn c -name '*.cpp' ! -path '*/cuda/*' | LC_ALL=C sort) |
  awk -v root="$root" -v folder="$folder" \
    '{ print "#include \"" root "/" $2 "\"" > (folder "/" $1 ".cpp") }'
set -- "$@" -Wno-shadow -Wno-subobject-linkage -DBS_FRONT_DOOR=1 '-DBS_CPU_ARCH="aarch64"'
printf '%s\n' "$folder"/*.cpp |
  xargs -n 1 -P "$(nproc)" aarch64-linux-gnu-g++ "$@" -fsyntax-only
