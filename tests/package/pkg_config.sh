#!/bin/sh
# pkg_config.sh PREFIX COMPILER SOURCE FOLDER: builds and runs a program with pkg-config's flags.
set -eu
command -v pkg-config > /dev/null || { echo "SKIPPED: no pkg-config"; exit 77; }
file=$(find "$1" -name bs.pc)
export PKG_CONFIG_PATH="${file%/bs.pc}"
pkg-config --exists --print-errors bs
# shellcheck disable=SC2046  # flags are words
"$2" -O1 "$3" -o "$4/pkg_config_consumer" $(pkg-config --cflags --libs bs)
"$4/pkg_config_consumer"
