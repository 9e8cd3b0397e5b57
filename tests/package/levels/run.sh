#!/usr/bin/env bash
# run.sh PROGRAM: the program's functions are of one level each time, never of more than is asked for.
set -euo pipefail
[[ $(BS_CPU_LEVEL=x86-64-v2 "$1") == "level 2" ]]
highest=$("$1")
[[ $(BS_CPU_LEVEL=x86-64-v4 "$1") == "$highest" && $(BS_CPU_LEVEL=other "$1") == "$highest" ]]
if grep -qw avx2 /proc/cpuinfo; then
  [[ $(BS_CPU_LEVEL=x86-64-v3 "$1") == "level 3" && $highest != "level 2" ]]
fi
