#!/usr/bin/env bash
# speech_data.sh SET ROOT MANIFEST: lists the recordings of a set of Debian packages, which lie
# unpacked or installed under ROOT (as in ROOT/usr/share), as JSON lines of path and text.
#   asterisk-en   asterisk-core-sounds-en-wav and asterisk-core-sounds-en: English prompts, one
#                 voice, 8 kHz; CC-BY-SA-3.0, by Allison Smith, paid for by Digium
#   fillets-nl, fillets-cs
#                 fillets-ng-data-nl (-cs) and fillets-ng-data: Dutch (Czech) dialogues of a game,
#                 22 kHz; GPL-2+
# Nothing is copied: the list names the files where they are. Texts become lower case without
# punctuation; digits that stand alone become English words, and texts with other numbers, whose
# words nobody can tell, are left out, as are descriptions of noises.
set -euo pipefail

set=$1 root=$2 manifest=$3

# Lines "path<TAB>text" to lines of JSON with clean texts. $1: characters that words are made of.
to_json() {
  LC_ALL=C.UTF-8 sed -E '
    s/\t(.*)$/\t \L\1 /
    s/\[[^]]*\]|\([^)]*\)|<[^>]*>//g' |
    if [ "$set" = asterisk-en ]; then
      sed -E '
        s/([ ,])0([ ,.])/\1zero\2/g; s/([ ,])1([ ,.])/\1one\2/g; s/([ ,])2([ ,.])/\1two\2/g
        s/([ ,])3([ ,.])/\1three\2/g; s/([ ,])4([ ,.])/\1four\2/g; s/([ ,])5([ ,.])/\1five\2/g
        s/([ ,])6([ ,.])/\1six\2/g; s/([ ,])7([ ,.])/\1seven\2/g; s/([ ,])8([ ,.])/\1eight\2/g
        s/([ ,])9([ ,.])/\1nine\2/g'
    else
      cat
    fi |
    awk -F'\t' '$2 !~ /[0-9]/' |
    LC_ALL=C.UTF-8 sed -E "s/’/'/g; h; s/\t.*//; x; s/.*\t//; s/[^[:alpha:]']+/ /g; s/ '+|'+ / /g
      s/^ +| +\$//g; /^\$/d; x; G; s/[\\\\\"]/\\\\&/g
      s/^([^\n]*)\n(.*)\$/{\"path\": \"\1\", \"text\": \"\2\"}/"
}

asterisk_en() {
  local sounds=$root/usr/share/asterisk/sounds/en_US_f_Allison
  local texts=$root/usr/share/doc/asterisk-core-sounds-en/core-sounds-en.txt.gz
  zcat "$texts" | tr -d '\r' | sed -nE 's/^([a-z0-9_/-]+): *(.*)$/\1\t\2/p' |
    while IFS=$'\t' read -r name text; do
      [ ! -f "$sounds/$name.wav" ] || printf '%s\t%s\n' "$(realpath "$sounds/$name.wav")" "$text"
    done
}

fillets() {
  local language=$1 data=$root/usr/share/games/fillets-ng level script id text
  for script in "$data"/script/*/dialogs_"$language".lua; do
    [ -f "$script" ] || continue
    level=$(basename "$(dirname "$script")")
    sed -nE '/^dialogId\("/{ s/^dialogId\("([^"]+)".*/\1/; h; }
      /^dialogStr\("/{ s/^dialogStr\("(.*)"\) *$/\1/; s/\\"/"/g; H; x; s/\n/\t/; p; }' "$script" |
      while IFS=$'\t' read -r id text; do
        [ ! -f "$data/sound/$level/$language/$id.ogg" ] ||
          printf '%s\t%s\n' "$(realpath "$data/sound/$level/$language/$id.ogg")" "$text"
      done
  done
}

case $set in
  asterisk-en) asterisk_en ;;
  fillets-*) fillets "${set#fillets-}" ;;
  *)
    echo "speech_data.sh: unknown set '$set': asterisk-en, fillets-nl or fillets-cs" >&2
    exit 2
    ;;
esac | to_json >"$manifest.part"
[ -s "$manifest.part" ] || {
  echo "speech_data.sh: no recordings of $set under $root" >&2
  exit 1
}
mv "$manifest.part" "$manifest"
