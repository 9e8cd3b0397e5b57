#!/usr/bin/env bash
# compile_time.sh LIMIT COMPILER ARGUMENTS...: fails where a source that includes <bs/nn.h> and nothing
# else takes the compiler more than LIMIT seconds of processor time, the least of five runs.
set -euo pipefail
limit=$1
shift
TIMEFORMAT='%U %S'
source=$(mktemp --suffix=.cpp)
trap 'rm -f "$source"' EXIT
echo '#include <bs/nn.h>' >"$source"

best=
for _ in 1 2 3 4 5; do
  output=$({ time "$@" -fsyntax-only "$source"; } 2>&1) || { echo "$output" && exit 1; }
  spent=${output##*$'\n'}
  total=$(awk '{ print $1 + $2 }' <<<"$spent")
  if [ -z "$best" ] || awk "BEGIN { exit !($total < $best) }"; then best=$total; fi
  if awk "BEGIN { exit !($best <= $limit) }"; then break; fi
done
echo "<bs/nn.h>: $best s, of $limit s"
if awk "BEGIN { exit !($best <= $limit) }"; then exit 0; fi
# Threads that share a core count as processor time while they wait for each other.
read -r load _ </proc/loadavg
if awk "BEGIN { exit !($load > $(nproc) / 2) }"; then
  echo "SKIPPED: the machine is busy (load $load)"
  exit 77
fi
exit 1
