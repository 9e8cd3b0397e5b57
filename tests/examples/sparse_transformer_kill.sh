#!/usr/bin/env bash
# sparse_transformer_kill.sh PROGRAM [KILLS]: a run that is killed at random moments, and each time
# resumed from what it left, ends in the checkpoint of a run that nobody disturbed; then the next run
# begins, until there were KILLS (50). No file is ever damaged, and no step's metrics are missing or
# there twice. BS_TEST_SEED gives other moments.
program=$1
kills=${2:-50}
source "$(dirname "${BASH_SOURCE[0]}")/cli.sh"

for i in $(seq 2000); do echo "line $i of a text that has $((i * i % 97)) in it"; done >text
small=(--data text --device cpu --layers 1 --heads 2 --width 32 --context 32 --block 16 --batch 2
  --local-blocks 2 --warmup 5 --eval-every 5 --generate 5 --steps 160)
RANDOM=${BS_TEST_SEED:-1}

start=$(date +%s%3N)
"$program" "${small[@]}" --out whole >out 2>err || fail "training failed" err
took=$(($(date +%s%3N) - start))  # milliseconds

# check_end RUN: it came to the end that the undisturbed run came to.
check_end() {
  cmp whole/checkpoint.safetensors "$1/checkpoint.safetensors" ||
    fail "after $killed kills training ended in other bytes"
  [ "$(steps_in "$1")" = 160 ] || fail "metrics tell of $(steps_in "$1") steps, not 160"
}

killed=0 resumed=0 ended=0 run=run-0
while [ "$killed" -lt "$kills" ]; do
  words=("${small[@]}" --out "$run")
  if [ -e "$run/checkpoint.safetensors" ]; then
    words=(--resume "$run/checkpoint.safetensors")
    resumed=$((resumed + 1))
  fi
  "$program" "${words[@]}" >out 2>err &
  process=$!
  delay=$((RANDOM % (took / 2) + 1))
  sleep $((delay / 1000)).$(printf '%03d' $((delay % 1000)))
  kill -KILL $process 2>/dev/null || true
  status=0
  wait $process 2>/dev/null || status=$?
  case $status in
    137) killed=$((killed + 1)) ;;
    0)
      check_end "$run"
      ended=$((ended + 1))
      run=run-$ended
      ;;
    *) fail "status $status of a run that was not killed" err ;;
  esac
done

[ "$resumed" -gt 0 ] || fail "no run came as far as its first checkpoint"
words=("${small[@]}" --out "$run")
[ ! -e "$run/checkpoint.safetensors" ] || words=(--resume "$run/checkpoint.safetensors")
"$program" "${words[@]}" >out 2>err || fail "the last run failed" err
check_end "$run"

# The next save sweeps what killed ones left, once that is a minute old; so we age it.
find "$run" -name '*.tmp' -exec touch -d '2 minutes ago' {} +
"$program" --resume "$run/checkpoint.safetensors" --steps 165 >out 2>err ||
  fail "more steps failed" err
left=$(find "$run" -name '*.tmp' | wc -l)
[ "$left" = 0 ] || fail "$left temporary files are left"
echo "killed $killed times, resumed $resumed times, $((ended + 1)) runs: the same checkpoint"
