#!/usr/bin/env bash
# chroot.sh BUILD: packs the folder BUILD, installs libbs-dev and bs-tools into a fresh Debian, and
# there builds and runs the consumer by CMake and by pkg-config. Of a build with CUDA all of it
# must start too, though no CUDA is there: only the static runtime, which a program links.
# Needs root, debootstrap and the net; ends with 77 and says SKIPPED where they are missing.
#
#   cmake --preset package && cmake --build --preset package
#   tests/package/chroot.sh build/package
set -euo pipefail
build=$(realpath "$1")
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
suite=${BS_SUITE:-bookworm}
work=$(mktemp -d)
root=$work/root
trap 'rm -rf "$work"' EXIT

skip() { echo "SKIPPED: $1"; exit 77; }
[ "$(id -u)" = 0 ] || skip 'only root can install into a folder'
command -v debootstrap >/dev/null || skip 'no debootstrap'
debootstrap --variant=minbase "$suite" "$root" >"$work/log" 2>&1 ||
  { tail -n 5 "$work/log"; skip "debootstrap makes no $suite, see above"; }

(cd "$build" && cpack -G DEB -B "$work/packages" >"$work/log") || { cat "$work/log"; exit 1; }
cp "$work"/packages/*.deb "$root/tmp/"
cp -r "$here/consumer" "$here/pkg_config.sh" "$root/tmp/"
runtime=$(sed -n 's/^CUDA_cudart_static_LIBRARY:FILEPATH=//p' "$build/CMakeCache.txt")
[ ! -e "$runtime" ] || install -D -t "$root$(dirname "$runtime")" "$runtime"

chroot "$root" sh -euc '
  export DEBIAN_FRONTEND=noninteractive LC_ALL=C
  apt-get install -y -qq -o Dpkg::Use-Pty=0 --no-install-recommends \
    /tmp/*.deb cmake make pkg-config gcc >/dev/null
  cmake -S /tmp/consumer -B /tmp/built -DCMAKE_BUILD_TYPE=Release >/dev/null
  cmake --build /tmp/built
  /tmp/built/consumer
  sh /tmp/pkg_config.sh /usr g++ /tmp/consumer/main.cpp /tmp
  ls /usr/share/doc/bs*/docs | head -n 3
  ! command -v bs-prebuild || bs-prebuild --sm 90 --tables 2>&1 | grep "NVRTC is needed"
'
echo "the packages of $build work in a fresh $suite"
