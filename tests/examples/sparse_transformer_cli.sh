#!/usr/bin/env bash
# sparse_transformer_cli.sh PROGRAM: the program as its user meets it. A run that is interrupted and
# resumed ends in the same checkpoint as one that was not; mistakes get one line and status 2.
set -euo pipefail
program=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

fail() {
  echo "FAILED: $1"
  [ $# -lt 2 ] || cat "$2"
  exit 1
}

# expect_usage_error WORDS...: status 2, nothing on the screen but one line that names the culprit.
expect_usage_error() {
  local culprit=$1 status=0
  shift
  "$program" "$@" >out 2>err || status=$?
  [ $status = 2 ] || fail "'$*' gave status $status, not 2" err
  [ "$(cat out err | wc -l)" = 1 ] || fail "'$*' printed more than one line" err
  grep -q -e "$culprit" err || fail "'$*' does not name $culprit" err
}

# expect_failure WHAT WORDS...: status 1 and a line that says what.
expect_failure() {
  local what=$1 status=0
  shift
  "$program" "$@" >out 2>err || status=$?
  [ $status = 1 ] || fail "'$*' gave status $status, not 1" err
  grep -q -e "$what" err || fail "'$*' does not say '$what'" err
}

for i in $(seq 2000); do echo "line $i of a text that has $((i * i % 97)) in it"; done >text
: >empty
head -c 300 text >short
small=(--data text --device cpu --layers 2 --heads 2 --width 32 --context 64 --block 16 --batch 4
  --local-blocks 2 --warmup 5 --eval-every 200 --generate 20)

"$program" --help >help || fail "--help failed"
grep -q -e --temperature help || fail "--help does not list --temperature" help
expect_usage_error --steps "${small[@]}" --steps many
expect_usage_error --colour "${small[@]}" --colour red
expect_usage_error --data --data /no/such/file
expect_usage_error --data "${small[@]}" --data empty
expect_usage_error --data "${small[@]}" --data short
expect_failure 'no/such' "${small[@]}" --resume no/such
expect_failure '--out' "${small[@]}" --out /proc/no

"$program" "${small[@]}" --steps 600 --out whole >out 2>err || fail "training failed" err
grep -q 'held out ' out || fail "no held-out loss at the end" out
for file in loss.svg pattern.svg sample.txt metrics.jsonl checkpoint.safetensors; do
  [ -s "whole/$file" ] || fail "no $file"
done
[ "$(grep -c '"loss"' whole/metrics.jsonl)" = 600 ] || fail "not one line a step in metrics.jsonl"

"$program" "${small[@]}" --steps 600 --out part >out 2>err &
process=$!
until grep -q '"step":20,' part/metrics.jsonl 2>/dev/null; do
  kill -0 $process || fail "training failed" err
  sleep 0.02
done
kill -INT $process
status=0
wait $process || status=$?
[ $status = 130 ] || fail "Ctrl-C gave status $status, not 130" err
grep -q -e '--resume part/checkpoint.safetensors' out || fail "no word on how to resume" out
done_steps=$(grep -c '"loss"' part/metrics.jsonl)
[ "$done_steps" -lt 600 ] || fail "the run was over before it could be interrupted"
expect_usage_error --width "${small[@]}" --resume part/checkpoint.safetensors --width 64
expect_usage_error --data --resume part/checkpoint.safetensors --data help
"$program" --resume part/checkpoint.safetensors >out 2>err || fail "the resumed run failed" err
[ "$(grep -c '"loss"' part/metrics.jsonl)" = 600 ] || fail "steps are missing or twice in metrics"
cmp whole/checkpoint.safetensors part/checkpoint.safetensors ||
  fail "interrupted after step $done_steps and resumed, training ended in other bytes"
echo "interrupted after step $done_steps and resumed: the same checkpoint"
