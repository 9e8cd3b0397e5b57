# Sourced by the tests of the examples' command lines: `program` is the program under test. Makes a
# folder, goes there and removes it at the end.
set -euo pipefail
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

# steps_in RUN: how many its metrics tell of.
steps_in() { grep -c '"loss"' "$1/metrics.jsonl"; }

# diverge RUN WORDS...: goes on with a run of that folder at a rate no weights survive: status 3, a
# word on why, and the checkpoint is the one from before.
diverge() {
  local run=$1 status=0
  shift
  cp "$run/checkpoint.safetensors" good
  "$program" --resume "$run/checkpoint.safetensors" --lr 1e38 "$@" >out 2>err ||
    status=$?
  [ $status = 3 ] || fail "training that diverges gave status $status, not 3" err
  grep -q -e 'a lower --lr' err || fail "no word on why training ended" err
  cmp good "$run/checkpoint.safetensors" || fail "the last good checkpoint was replaced" err
}

# interrupt RUN WORDS...: starts training into the folder RUN, and sends $signal after 20 steps: INT,
# as Ctrl-C does, where it is not set.
interrupt() {
  local run=$1 process status=0
  shift
  "$program" "$@" --out "$run" >out 2>err &
  process=$!
  until grep -q '"step":20,' "$run/metrics.jsonl" 2>/dev/null; do
    kill -0 $process || fail "training failed" err
    sleep 0.02
  done
  kill -"${signal:-INT}" $process
  wait $process || status=$?
  [ $status = 130 ] || fail "SIG${signal:-INT} gave status $status, not 130" err
  grep -q -e "--resume $run/checkpoint.safetensors" out || fail "no word on how to resume" out
}
