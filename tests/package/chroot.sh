#!/usr/bin/env bash
# chroot.sh FOLDER: installs FOLDER/libbs-dev_*.deb (of a build without CUDA) into a fresh Debian, and
# there builds and runs the consumer by CMake and by pkg-config. Needs root, debootstrap and the net.
#
#   cmake --preset package -DBS_CUDA=OFF && cmake --build --preset package
#   (cd build/package && cpack -G DEB) && tests/package/chroot.sh build/package
set -euo pipefail
packages=$(realpath "$1")
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
suite=${BS_SUITE:-bookworm}
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

debootstrap --variant=minbase "$suite" "$root" >/dev/null
cp "$packages"/*.deb "$root/tmp/"
cp -r "$here/consumer" "$here/pkg_config.sh" "$root/tmp/"
chroot "$root" sh -euc '
  export DEBIAN_FRONTEND=noninteractive LC_ALL=C
  apt-get install -y -qq --no-install-recommends /tmp/*.deb cmake make pkg-config gcc >/dev/null
  cmake -S /tmp/consumer -B /tmp/built -DCMAKE_BUILD_TYPE=Release >/dev/null
  cmake --build /tmp/built
  /tmp/built/consumer
  sh /tmp/pkg_config.sh /usr g++ /tmp/consumer/main.cpp /tmp
  ls /usr/share/doc/bs*/docs | head -n 3
'
echo "the packages of $packages work in a fresh $suite"
