#!/usr/bin/env bash
# bs.sh SCRIPT: what `./bs` fetches, with apt, CMake and the programs played by scripts of this
# test: data is whole or not there whatever fails, and the next call fetches it again; a call fetches
# once; paths mean what they say from other folders and through links; a copied build starts afresh.
set -euo pipefail
script=$1
folder=$(realpath "$(mktemp -d)")
trap 'rm -rf "$folder"' EXIT
cd "$folder"

fail() {
  echo "FAILED: $1"
  cat out err 2>/dev/null
  exit 1
}

# play NAME <<SCRIPT: a command that the script under test finds before the system's.
play() {
  { echo '#!/usr/bin/env bash'; cat; } >"tools/$1"
  chmod +x "tools/$1"
}

mkdir -p tools tree packages
cp "$script" tree/bs
real=$PATH
export PATH=$folder/tools:$PATH stage=$folder calls=$folder/calls
: >calls

play dpkg-query <<<"printf 'install ok installed'"
# Packages are archives here: the text of 'anarchism', and fonts.
# shellcheck disable=SC2016 # it is the player that expands them
play dpkg-deb <<<'[ ! -e "$stage/damaged" ] || { head -c 600 "${@: -1}"; exit 2; }
cat "${@: -1}"'
play apt-get <<'SCRIPT'
echo "apt-get $*" >>"$calls"
[ ! -e "$stage/offline" ] || exit 100
[ "$1" = download ] || exit 0
for package in "$@"; do
  case $package in
    anarchism | fonts-*) cp "$stage/packages/${package%%-*}.deb" "./${package}_1_all.deb" ;;
  esac
done
SCRIPT
play sudo <<<'exec "$@"'
play cmake <<'SCRIPT'
echo "cmake $*" >>"$calls"
program() {
  mkdir -p "$1"
  printf '#!/bin/sh\necho "in $PWD"\nprintf "%%s\\n" "$@"\n' >"$1/$2"
  chmod +x "$1/$2"
}
case $1 in
  --preset)
    mkdir -p build/release
    echo 'rnnt_lstm image_classifier' >build/release/build.ninja
    echo "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" >build/release/CMakeCache.txt
    ;;
  --build)
    for name in sparse_transformer image_classifier; do program "$2/examples/$name" $name; done
    ;;
esac
SCRIPT

mkdir -p root/usr/share/doc/anarchism/markdown root/usr/share/fonts
for name in b a; do
  { echo "# $name"; seq 5000; echo 'a [link](http://x) and *stress*'; } |
    gzip >root/usr/share/doc/anarchism/markdown/$name.md.gz
done
tar -C root -cf packages/anarchism.deb ./usr/share/doc
echo font >root/usr/share/fonts/x.ttf
tar -C root -cf packages/fonts.deb ./usr/share/fonts
text=tree/build/data/anarchism.txt

# call STATUS WORDS...: runs ./bs, here or in $at, and looks at its status.
call() {
  local wanted=$1 status=0
  shift
  (cd "${at:-tree}" && "${bs:-./bs}" "$@") >out 2>err || status=$?
  [ $status = "$wanted" ] || fail "'$*' gave status $status, not $wanted"
}
# refused WHAT WORDS...: fails with a word on what, and leaves no text.
refused() {
  local what=$1
  shift
  call 1 "$@"
  grep -q -e "$what" err || fail "'$*' does not say '$what'"
  [ ! -e $text ] || fail "'$*' failed and left a text"
}

# Nothing is kept of a fetch that fails, whatever fails.
touch offline
refused "could not fetch the package 'anarchism'" demo
rm offline
touch damaged
refused 'does not unpack' demo
rm damaged
for tool in zcat sed cat; do
  # A part of what there is, then an error; but not where the script uses the tool for other things.
  play $tool <<SCRIPT
PATH=$real
case "$tool \$*" in
  zcat* | sed*-zE* | 'cat -s') $tool "\$@" | head -c 300; exit 1 ;;
esac
exec $tool "\$@"
SCRIPT
  refused 'the training text could not be written' demo
  rm tools/$tool
done
# A disk with room for 8 KiB of each file, which says so by an error and no signal.
(trap '' XFSZ && ulimit -f 8 && call 1 demo)
[ ! -e $text ] || fail 'a full disk left a text'

# Then it comes, whole and in one order, and once.
call 0 demo --steps 3
[ "$(head -n 1 $text)" = '# a' ] || fail 'the text is not sorted'
[ "$(wc -l <$text)" = 10004 ] || fail 'the text is not whole'
grep -q '^a link and stress$' $text || fail 'links and emphasis are left in the text'
[ ! -e tree/build/data/package ] || fail 'packages are left'
: >calls
call 0 demo
! grep -q download calls || fail 'a second call fetches again'
grep -q 'build/demo' out || fail 'no folder for the run'

# The caller's paths: from another folder, through a symbolic link, and with data of their own.
mkdir elsewhere
ln -s ../tree/bs elsewhere/link
rm $text
at=elsewhere bs=./link call 0 demo --data mine --out run
grep -qx "in $folder/elsewhere" out || fail 'the program does not run where it was called'
grep -qx mine out || fail "the caller's path was changed"
[ ! -e $text ] || fail 'a text was fetched though one was given'
at=elsewhere bs=./link call 0 demo
grep -qx "$folder/$text" out || fail 'the text is not named in full'

# Fonts are all there, or none.
touch damaged
call 1 images
[ ! -e tree/build/data/fonts ] || fail 'a part of the fonts is taken for all'
rm damaged
call 0 images
[ -s tree/build/data/fonts/usr/share/fonts/x.ttf ] || fail 'no fonts'

# A copied tree builds its own sources.
cp -r tree copy
: >calls
at=copy call 0 demo
grep -q 'starting it afresh' err || fail 'the copy was built in the folder of the original'
grep -q -e --preset calls || fail 'the copy was not configured'

call 1 no-such-command
grep -q "unknown command 'no-such-command'" err || fail 'an unknown command is not named'
echo "texts and fonts are whole or not there"
