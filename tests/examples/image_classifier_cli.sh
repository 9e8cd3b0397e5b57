#!/usr/bin/env bash
# image_classifier_cli.sh PROGRAM: the program as its user meets it, where there are fonts. A run that
# is interrupted and resumed ends in the same checkpoint as one that was not.
program=$1
source "$(dirname "${BASH_SOURCE[0]}")/cli.sh"

"$program" --help >help || fail "--help failed"
grep -q -e --prune help || fail "--help does not list --prune" help
mkdir empty
expect_usage_error --data --data /no/such/folder
expect_usage_error --data --data empty
expect_usage_error '--batch 1048576 of --size 256' --data empty --batch 1048576 --size 256
expect_usage_error --depth --data empty --depth 9
expect_usage_error --width --data empty --width 12
expect_usage_error --width --data empty --model sparse --block 16 --width 24
expect_usage_error --depth --data empty --model sparse-wrn --depth 14

# Five families of one font each will do for a run of no account.
mapfile -t fonts < <(find /usr/share/fonts -name '*.ttf' 2>/dev/null | LC_ALL=C sort | head -5)
[ ${#fonts[@]} = 5 ] || { echo "fewer than five fonts are installed: no run"; exit 77; }
for i in 0 1 2 3 4; do
  mkdir -p "fonts/$i"
  cp "${fonts[$i]}" "fonts/$i/"
done
small=(--data fonts --device cpu --size 12 --width 8 --batch 8 --eval-every 30)
"$program" "${small[@]}" --steps 90 --out whole >out 2>err || {
  grep -q 'no font there' err && { echo "the fonts lack letters: no run"; exit 77; }
  fail "training failed" err
}
grep -q 'held out ' out || fail "no held-out accuracy at the end" out
for file in accuracy.svg density.svg confusion.pgm filters.pgm metrics.jsonl checkpoint.safetensors; do
  [ -s "whole/$file" ] || fail "no $file"
done
[ "$(steps_in whole)" = 90 ] || fail "not one line a step in metrics.jsonl"
interrupt part "${small[@]}" --steps 90
expect_usage_error --size "${small[@]}" --resume part/checkpoint.safetensors --size 16
"$program" --resume part/checkpoint.safetensors >out 2>err || fail "the resumed run failed" err
cmp whole/checkpoint.safetensors part/checkpoint.safetensors ||
  fail "interrupted and resumed, training ended in other bytes"
diverge whole --eval-every 1 --steps 120

# Layouts change between the checkpoint and the end.
sparse=("${small[@]}" --model sparse --steps 90)
"$program" "${sparse[@]}" --out sparse_whole >out 2>err || fail "training a sparse model failed" err
grep -q 'right with 1[0-9.]* % of the blocks' out || fail "no accuracy at a tenth of the blocks" out
interrupt sparse_part "${sparse[@]}"
"$program" --resume sparse_part/checkpoint.safetensors >out 2>err ||
  fail "the resumed sparse run failed" err
cmp sparse_whole/checkpoint.safetensors sparse_part/checkpoint.safetensors ||
  fail "interrupted and resumed, a sparse model ended in other bytes"

"$program" "${small[@]}" --model sparse-wrn --depth 10 --steps 10 --out wide >out 2>err ||
  fail "training a wide sparse model failed" err
grep -q 'right with 1[0-9.]* % of the blocks' out || fail "a wide sparse model was not pruned" out
# A wide model's own depth and width are a part of its checkpoint.
"$program" "${small[@]}" --model wrn --steps 2 --out wrn >out 2>err ||
  fail "training a wide model failed" err
"$program" --resume wrn/checkpoint.safetensors --steps 3 >out 2>err ||
  fail "a wide model was not resumed" err
