#!/usr/bin/env bash
# sparse_transformer_cli.sh PROGRAM [STEPS]: the program as its user meets it. A run of STEPS (240)
# that is interrupted and resumed ends in the same checkpoint as one that was not; mistakes get one
# line and status 2.
program=$1 steps=${2:-240}
source "$(dirname "${BASH_SOURCE[0]}")/cli.sh"

for i in $(seq 2000); do echo "line $i of a text that has $((i * i % 97)) in it"; done >text
: >empty
head -c 300 text >short
small=(--data text --device cpu --layers 2 --heads 2 --width 32 --context 64 --block 16 --batch 4
  --local-blocks 2 --warmup 5 --eval-every 60 --generate 20)

"$program" --help >help || fail "--help failed"
grep -q -e --temperature help || fail "--help does not list --temperature" help
expect_usage_error --steps "${small[@]}" --steps many
expect_usage_error --colour "${small[@]}" --colour red
expect_usage_error --data --data /no/such/file
expect_usage_error --data "${small[@]}" --data empty
expect_usage_error --data "${small[@]}" --data short
expect_usage_error --temperature "${small[@]}" --temperature nan
expect_usage_error --prompt "${small[@]}" --prompt ''
expect_failure 'no/such' "${small[@]}" --resume no/such
mkfifo pipe
expect_failure 'no regular file' "${small[@]}" --resume pipe
expect_failure '--out' "${small[@]}" --out /proc/no

"$program" "${small[@]}" --steps "$steps" --out whole >out 2>err || fail "training failed" err
grep -q 'held out ' out || fail "no held-out loss at the end" out
for file in loss.svg pattern.svg sample.txt metrics.jsonl checkpoint.safetensors; do
  [ -s "whole/$file" ] || fail "no $file"
done
[ "$(steps_in whole)" = "$steps" ] || fail "not one line a step in metrics.jsonl"

interrupt part "${small[@]}" --steps "$steps"
done_steps=$(steps_in part)
[ "$done_steps" -lt "$steps" ] || fail "the run was over before it could be interrupted"
expect_usage_error --width "${small[@]}" --resume part/checkpoint.safetensors --width 64
expect_usage_error --data --resume part/checkpoint.safetensors --data help
expect_usage_error '--steps 10' --resume part/checkpoint.safetensors --steps 10
"$program" --resume part/checkpoint.safetensors >out 2>err || fail "the resumed run failed" err
[ "$(steps_in part)" = "$steps" ] || fail "steps are missing or twice in metrics"
cmp whole/checkpoint.safetensors part/checkpoint.safetensors ||
  fail "interrupted after step $done_steps and resumed, training ended in other bytes"
echo "interrupted after step $done_steps and resumed: the same checkpoint"

# A prompt need not be UTF-8, and comes back from the checkpoint as it was.
"$program" "${small[@]}" --steps 2 --out bytes --prompt $'na\xefve' >out 2>err ||
  fail "a prompt that is not UTF-8 failed" err
"$program" --resume bytes/checkpoint.safetensors --steps 3 >out 2>err ||
  fail "resuming with a prompt that is not UTF-8 failed" err
head -c 5 bytes/sample.txt | cmp - <(printf 'na\xefve') || fail "the prompt came back changed"

# A new run moves the one that was there aside; a checkpoint says nothing of where files go.
"$program" "${small[@]}" --steps 2 --out bytes >out 2>err || fail "a second run failed" err
[ -s bytes/previous-1/metrics.jsonl ] || fail "the first run's metrics are gone" err
mkdir elsewhere
cp bytes/checkpoint.safetensors elsewhere/
(cd elsewhere && "$program" --resume checkpoint.safetensors --steps 3 --data ../text) >out 2>err ||
  fail "a checkpoint that was moved does not resume" err
[ "$(steps_in elsewhere)" = 1 ] || fail "a moved checkpoint went on elsewhere" err

# Full disks and closed streams.
if [ -e /dev/full ]; then
  status=0
  "$program" "${small[@]}" --steps 2 --out full >/dev/full 2>err || status=$?
  [ $status = 1 ] || fail "a full standard output gave status $status, not 1" err
fi
"$program" "${small[@]}" --steps 2 --out closed >&- 2>&- <&- || fail "closed streams: failed"
[ "$(steps_in closed)" = 2 ] || fail "closed streams: metrics are wrong"

# What a terminal sends that is closed, a pipe that nobody reads and a job that is ended: all save as
# Ctrl-C does, and the run goes on to the same bytes.
for signal in HUP PIPE TERM; do
  interrupt "on_$signal" "${small[@]}" --steps "$steps"
  "$program" --resume "on_$signal/checkpoint.safetensors" >out 2>err ||
    fail "what SIG$signal saved does not resume" err
  cmp whole/checkpoint.safetensors "on_$signal/checkpoint.safetensors" ||
    fail "after SIG$signal training ended in other bytes"
done
unset signal
# A reader that goes away raises SIGPIPE again with each word of the run, and of the handler.
{
  timeout 120 "$program" "${small[@]}" --steps 100000 --out unread 2>&1 || echo $? >status
} | head -n 1 >out
[ "$(cat status)" = 130 ] || fail "a reader that went away: status $(cat status)"
[ -s unread/checkpoint.safetensors ] || fail "a reader that went away: nothing was saved"

diverge whole --eval-every 1 --steps $((steps + 60))
