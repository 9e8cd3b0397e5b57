#!/usr/bin/env bash
# sparse_transformer_kill.sh PROGRAM [KILLS]: a run that is killed at random moments, and each time
# resumed from what it left, ends in the checkpoint of a run that nobody disturbed. No file is ever
# damaged, and no step's metrics are missing or there twice.
program=$1
kills=${2:-10}
source "$(dirname "${BASH_SOURCE[0]}")/cli.sh"

for i in $(seq 2000); do echo "line $i of a text that has $((i * i % 97)) in it"; done >text
small=(--data text --device cpu --layers 1 --heads 2 --width 32 --context 32 --block 16 --batch 2
  --local-blocks 2 --warmup 5 --eval-every 5 --generate 5 --steps 160)
RANDOM=${BS_TEST_SEED:-1}

start=$(date +%s%3N)
"$program" "${small[@]}" --out whole >out 2>err || fail "training failed" err
took=$(($(date +%s%3N) - start))  # milliseconds

resumed=0
for _ in $(seq "$kills"); do
  words=("${small[@]}" --out run)
  if [ -e run/checkpoint.safetensors ]; then
    words=(--resume run/checkpoint.safetensors)
    resumed=$((resumed + 1))
  fi
  "$program" "${words[@]}" >out 2>err &
  process=$!
  delay=$((RANDOM % (took / 2) + 1))
  sleep $((delay / 1000)).$(printf '%03d' $((delay % 1000)))
  if ! kill -KILL $process 2>/dev/null; then
    wait $process || fail "a run that was not killed failed" err
    continue
  fi
  status=0
  wait $process 2>/dev/null || status=$?
  [ $status = 137 ] || [ $status = 0 ] || fail "status $status before the kill" err
done

[ "$resumed" -gt 0 ] || fail "no run came as far as its first checkpoint"
"$program" --resume run/checkpoint.safetensors >out 2>err || fail "the last resume failed" err
cmp whole/checkpoint.safetensors run/checkpoint.safetensors ||
  fail "after $kills kills training ended in other bytes"
[ "$(steps_in run)" = 160 ] || fail "metrics tell of $(steps_in run) steps, not 160"

# The next save sweeps what killed ones left, once that is a minute old; so we age it.
find run -name '*.tmp' -exec touch -d '2 minutes ago' {} +
"$program" --resume run/checkpoint.safetensors --steps 165 >out 2>err ||
  fail "more steps failed" err
left=$(find run -name '*.tmp' | wc -l)
[ "$left" = 0 ] || fail "$left temporary files are left"
echo "killed $kills times, resumed $resumed times: the same checkpoint"
