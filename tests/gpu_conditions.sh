#!/usr/bin/env bash
# Runs the GPU tests as programs in company would: on a stream that is not the library's own, beside
# a busy stream of the same process, and twice at a time under MPS.
#
#   tests/gpu_conditions.sh [-b FOLDER] [-s SECONDS] [-o FOLDER] [CONDITION...]
#
#   -b  where test_lib, test_kernels, test_autograd and test_nn are; build/release/tests
#   -s  time limit of a program; 1800
#   -o  where the output goes; a temporary folder
#   CONDITION  other-stream, busy-stream, mps; all of them
#
# Prints a line for each condition and program, and fails where one fails. Where MPS cannot start, it
# is skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=build/release/tests seconds=1800 out=""
while getopts b:s:o: option; do
  case $option in
    b) folder=$OPTARG ;;
    s) seconds=$OPTARG ;;
    o) out=$OPTARG ;;
    *) sed -n '5,10s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
  esac
done
shift $((OPTIND - 1))
conditions=("$@")
[ ${#conditions[@]} -gt 0 ] || conditions=(other-stream busy-stream mps)
out=${out:-$(mktemp -d)}
mkdir -p "$out"
export BS_TEST_DEVICE=cuda
failed=0

# run CONDITION PROGRAM LOG: runs a program's tests. Where another stream is busy, those are left out
# that look at all that a GPU or this process does, and the one whose kernel fails: the stream's
# kernel ends with it. So do all clients under MPS.
run() {
  local without=
  [ "$1" != busy-stream ] ||
    without='profiler*,activity*,a wait without end*,team: threads that wait*'
  [ "$1" != mps ] || without='a wait without end*'
  timeout "$seconds" "$folder/$2" --no-skipped-summary --test-case-exclude="$without" \
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
  case $condition in
    other-stream) beside other-stream BS_TEST_OTHER_STREAM ;;
    busy-stream) beside busy-stream BS_TEST_BUSY_STREAM ;;
    mps) under_mps ;;
    *) echo "no such condition: $condition" >&2 && exit 2 ;;
  esac
done
echo "output: $out"
exit $failed
