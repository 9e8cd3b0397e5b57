#!/usr/bin/env bash
# sparse_transformer_cli.sh PROGRAM: the program as its user meets it. A run that is interrupted and
# resumed ends in the same checkpoint as one that was not; mistakes get one line and status 2.
program=$1
source "$(dirname "${BASH_SOURCE[0]}")/cli.sh"

for i in $(seq 2000); do echo "line $i of a text that has $((i * i % 97)) in it"; done >text
: >empty
head -c 300 text >short
small=(--data text --device cpu --layers 2 --heads 2 --width 32 --context 64 --block 16 --batch 4
  --local-blocks 2 --warmup 5 --eval-every 100 --generate 20)

"$program" --help >help || fail "--help failed"
grep -q -e --temperature help || fail "--help does not list --temperature" help
expect_usage_error --steps "${small[@]}" --steps many
expect_usage_error --colour "${small[@]}" --colour red
expect_usage_error --data --data /no/such/file
expect_usage_error --data "${small[@]}" --data empty
expect_usage_error --data "${small[@]}" --data short
expect_failure 'no/such' "${small[@]}" --resume no/such
expect_failure '--out' "${small[@]}" --out /proc/no

"$program" "${small[@]}" --steps 240 --out whole >out 2>err || fail "training failed" err
grep -q 'held out ' out || fail "no held-out loss at the end" out
for file in loss.svg pattern.svg sample.txt metrics.jsonl checkpoint.safetensors; do
  [ -s "whole/$file" ] || fail "no $file"
done
[ "$(steps_in whole)" = 240 ] || fail "not one line a step in metrics.jsonl"

interrupt part "${small[@]}" --steps 240
done_steps=$(steps_in part)
[ "$done_steps" -lt 240 ] || fail "the run was over before it could be interrupted"
expect_usage_error --width "${small[@]}" --resume part/checkpoint.safetensors --width 64
expect_usage_error --data --resume part/checkpoint.safetensors --data help
expect_usage_error '--steps 10' --resume part/checkpoint.safetensors --steps 10
"$program" --resume part/checkpoint.safetensors >out 2>err || fail "the resumed run failed" err
[ "$(steps_in part)" = 240 ] || fail "steps are missing or twice in metrics"
cmp whole/checkpoint.safetensors part/checkpoint.safetensors ||
  fail "interrupted after step $done_steps and resumed, training ended in other bytes"
echo "interrupted after step $done_steps and resumed: the same checkpoint"
