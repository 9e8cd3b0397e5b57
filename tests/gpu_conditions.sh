#!/usr/bin/env bash
# Runs the GPU tests as programs in company would: on a stream that is not the library's own, beside
# a busy stream of the same process, and twice at a time under MPS.
#
#   tests/gpu_conditions.sh [-b FOLDER] [-s SECONDS] [-k PART/PARTS] [-o FOLDER] [CONDITION...]
#
#   -b  where test_lib, test_kernels, test_autograd and test_nn are; build/release/tests
#   -s  time limit of a program; 1800
#   -k  of each program's tests this part only, such as 2/3: for a machine that is lent in pieces
#   -o  where the output goes; a temporary folder
#   CONDITION  other-stream, busy-stream, mps; all of them
#
# Prints a line for each test that is left out, with the reason, and one for each condition and
# program. Fails where one fails. Where MPS cannot start, it is skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=build/release/tests seconds=1800 part=1/1 out=""
while getopts b:s:k:o: option; do
  case $option in
    b) folder=$OPTARG ;;
    s) seconds=$OPTARG ;;
    k) part=$OPTARG ;;
    o) out=$OPTARG ;;
    *) sed -n '5,11s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
  esac
done
shift $((OPTIND - 1))
number=${part%/*} parts=${part#*/}
if ! [[ $part =~ ^[1-9][0-9]*/[1-9][0-9]*$ ]] || [ "$number" -gt "$parts" ]; then
  echo "-k $part: expected a part and their number, such as 2/3" >&2
  exit 2
fi
conditions=("$@")
[ ${#conditions[@]} -gt 0 ] || conditions=(other-stream busy-stream mps)
out=${out:-$(mktemp -d)}
mkdir -p "$out"
export BS_TEST_DEVICE=cuda
failed=0

# left_out CONDITION: the tests that cannot hold there, each with its reason.
left_out() {
  case $1 in
    busy-stream) cat <<'TESTS' ;;
profiler*: counts what the busy stream launches too
activity*: counts what the busy stream launches too
a wait without end*: its kernel fails, and the busy stream's with it
team: threads that wait*: the busy stream's thread takes a core
gpu model: a GPU is measured*: the busy stream takes a share of what it measures
TESTS
    mps) cat <<'TESTS' ;;
a wait without end*: a kernel that fails ends every client
gpu model: a GPU is measured*: the other client takes a share of what it measures
memory that another stream has freed*: takes more than half of the memory that is free
TESTS
  esac
}

# without CONDITION: their patterns, as doctest takes them.
without() { left_out "$1" | sed 's/\*: .*/*/' | paste -sd, -; }

# run CONDITION PROGRAM LOG: runs this part of a program's tests.
run() {
  local filter tests
  filter=--test-case-exclude=$(without "$1")
  tests=$("$folder/$2" --count "$filter") || return
  tests=${tests##*: }
  timeout "$seconds" "$folder/$2" --no-skipped-summary "$filter" \
    --first=$((tests * (number - 1) / parts + 1)) --last=$((tests * number / parts)) \
    > "$out/$1-$3.txt" 2>&1
}

# tell CONDITION PROGRAM STATUS SECONDS
tell() {
  local verdict=passed
  case $3 in
    0) ;;
    77) verdict=SKIPPED ;;
    124) verdict="FAILED, cut off" failed=1 ;;
    *) verdict="FAILED, status $3" failed=1 ;;
  esac
  printf '%-14s %-14s %5d s  %s\n' "$1" "$2" "$4" "$verdict"
}

# beside CONDITION VARIABLE: every program, with the variable set.
beside() {
  local program start status
  for program in test_lib test_kernels test_autograd test_nn; do
    start=$SECONDS status=0
    (export "$2=1" && run "$1" "$program" "$program") || status=$?
    tell "$1" "$program" "$status" $((SECONDS - start))
  done
}

# under_mps: every program twice at a time, as two clients of one daemon.
under_mps() {
  export CUDA_MPS_PIPE_DIRECTORY=$out/mps CUDA_MPS_LOG_DIRECTORY=$out/mps-log
  mkdir -p "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
  if ! nvidia-cuda-mps-control -d > "$out/mps.txt" 2>&1; then
    printf '%-14s SKIPPED: no MPS, see %s\n' mps "$out/mps.txt"
    return
  fi
  local program start status first
  for program in test_lib test_kernels test_autograd test_nn; do
    start=$SECONDS status=0
    run mps "$program" "$program-1" &
    first=$!
    run mps "$program" "$program-2" || status=$?
    wait "$first" || status=$?
    tell mps "$program" "$status" $((SECONDS - start))
  done
  echo quit | nvidia-cuda-mps-control > /dev/null
  unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
}

for condition in "${conditions[@]}"; do
  left_out "$condition" | sed "s/^/$condition leaves out /"
  case $condition in
    other-stream) beside other-stream BS_TEST_OTHER_STREAM ;;
    busy-stream) beside busy-stream BS_TEST_BUSY_STREAM ;;
    mps) under_mps ;;
    *) echo "no such condition: $condition" >&2 && exit 2 ;;
  esac
done
echo "output: $out"
exit $failed
