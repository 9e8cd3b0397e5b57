#!/usr/bin/env bash
# rnnt_lstm_cli.sh PROGRAM SOURCE [STEPS]: the program as its user meets it, on sounds made here. A
# run of STEPS (120) that is interrupted and resumed ends in the same checkpoint as one that was not;
# mistakes get one line and status 2; a checkpoint transcribes a file piece by piece; lists are made
# of Debian's packages.
program=$1 source=$2 steps=${3:-120}
source "$(dirname "${BASH_SOURCE[0]}")/cli.sh"

# A wav file of noise, of $2 tenths of a second at 8 kHz.
make_wav() {
  local bytes=$(($2 * 1600))
  # shellcheck disable=SC2059 # the format is the content
  little() { printf "\\x$(printf %02x $(($1 & 255)))\\x$(printf %02x $(($1 >> 8 & 255)))"; }
  {
    printf RIFF; little $((36 + bytes)); little $((36 + bytes >> 16)); printf 'WAVEfmt '
    little 16; little 0; little 1; little 1; little 8000; little 0
    little 16000; little 0; little 2; little 16; printf data; little $bytes; little 0
    head -c $bytes <(yes "sound $1")
  } >"$1.wav"
}

for i in $(seq 24); do
  make_wav "$i" $((3 + i % 5))
  echo "{\"path\": \"$i.wav\", \"text\": \"text $((i % 12))\"}"
done >list
echo '{"path": "none.wav", "text": "missing"}' >>list
echo 'no json' >broken
: >empty
small=(--data list --device cpu --encoder 24 --prediction 16 --joint 16 --mels 16 --batch 4
  --held-out 0.3 --warmup 5 --eval-every 50)

"$program" --help >help || fail "--help failed"
grep -q -e --stream help || fail "--help does not list --stream" help
expect_usage_error --data
expect_usage_error --steps "${small[@]}" --steps many
expect_usage_error --data --data /no/such/file
expect_usage_error --data "${small[@]}" --data empty
expect_usage_error --resume --stream 1.wav
expect_failure 'broken:1' "${small[@]}" --data broken
head -24 list >readable
expect_usage_error '--stack 64' "${small[@]}" --data readable --stack 64 --hop 0.02 --out stacked
[ ! -e stacked ] || fail "--stack 64 was refused, but only after the run had begun"

"$program" "${small[@]}" --steps "$steps" --out whole >out 2>err || fail "training failed" err
grep -q 'held out ' out || fail "no held-out errors at the end" out
grep -q '1 unreadable' out || fail "the unreadable recording is not counted" out
for file in loss.svg alignment.svg metrics.jsonl checkpoint.safetensors; do
  [ -s "whole/$file" ] || fail "no $file"
done
[ "$(steps_in whole)" = "$steps" ] || fail "not one line a step in metrics.jsonl"
"$program" --resume whole/checkpoint.safetensors --device cpu --stream 7.wav >out 2>err ||
  fail "--stream failed" err
grep -q 'times as fast' err || fail "--stream does not tell its speed" err
mkfifo pipe
expect_failure 'pipe: is no regular file' --resume whole/checkpoint.safetensors --device cpu \
  --stream pipe

interrupt part "${small[@]}" --steps "$steps"
expect_usage_error --encoder "${small[@]}" --resume part/checkpoint.safetensors --encoder 32
head -20 list >other
expect_usage_error --data --resume part/checkpoint.safetensors --data other
"$program" --resume part/checkpoint.safetensors --device cpu >out 2>err ||
  fail "the resumed run failed" err
cmp whole/checkpoint.safetensors part/checkpoint.safetensors ||
  fail "interrupted and resumed, training ended in other bytes"

diverge whole --device cpu --steps $((steps + 80))
diverge whole --device cpu --steps $((steps + 2))  # ends before there were many steps to skip

# Lists made of packages: texts are cleaned, what has no recording or no words is left out.
mkdir -p root/usr/share/doc/asterisk-core-sounds-en \
  root/usr/share/asterisk/sounds/en_US_f_Allison/digits \
  root/usr/share/games/fillets-ng/{script/wreck,sound/wreck/nl}
printf '%s\n' '; comment' 'beep: [a tone]' "agent: Agent, please dial 1 - that's \"it\"." \
  'digits/20: Twenty' 'many: dial 500' 'gone: not here' |
  gzip >root/usr/share/doc/asterisk-core-sounds-en/core-sounds-en.txt.gz
for name in beep agent digits/20 many; do
  cp 1.wav root/usr/share/asterisk/sounds/en_US_f_Allison/$name.wav
done
"$source/examples/rnnt_lstm/speech_data.sh" asterisk-en root english || fail "no English list"
cut -d'"' -f8 english | paste -sd/ >texts
[ "$(cat texts)" = "agent please dial one that's it/twenty" ] || fail "other texts" texts
printf '%s\n' 'dialogId("a-b", "font_big", "What \"is\" that?")' 'dialogStr("Zo één, \"vis\"!")' \
  'dialogId("c", "font_big", "No recording.")' 'dialogStr("Niets.")' \
  >root/usr/share/games/fillets-ng/script/wreck/dialogs_nl.lua
cp 1.wav root/usr/share/games/fillets-ng/sound/wreck/nl/a-b.ogg
"$source/examples/rnnt_lstm/speech_data.sh" fillets-nl root dutch || fail "no Dutch list"
[ "$(cut -d'"' -f8 dutch)" = "zo één vis" ] || fail "other texts" dutch
"$source/examples/rnnt_lstm/speech_data.sh" fillets-cs root czech 2>err && fail "a list of nothing"
grep -q 'no recordings' err || fail "an empty set is not named" err
echo "interrupted and resumed: the same checkpoint; lists of packages: as they should be"
