#!/bin/sh
# Builds a settee for Linux that needs no shared library: glibc, libstdc++ and RocksDB are linked statically.
#
#   packaging/static.sh [FILE [TARGET]]     FILE: path of the program (default: static/settee in cargo's target directory)
#                                           TARGET: x86_64-unknown-linux-gnu or aarch64-unknown-linux-gnu (default: this machine's)
#
# Requires the packages of every build (g++, clang, libclang-dev, make; Node.js 20.19 with npm) and libc6-dev, which contains
# the static glibc on Debian and Ubuntu. All crates except the last one are shared with `make run`, so RocksDB is not compiled
# again (docs/adr/20-operation-and-packages.md). musl is not supported, because distributions have no C++ compiler for it.
#
# Another architecture requires its g++ with glibc (on Debian g++-aarch64-linux-gnu) and an emulator that executes the result
# (qemu-user), and compiles all libraries for it. rustup installs Rust's standard library of that architecture.
set -eu
cd "$(dirname "$0")/.."
directory=${CARGO_TARGET_DIR:-target}
file=${1:-$directory/static/settee}
host=$(rustc -vV | sed -n 's/^host: //p')
target=${2:-$host}
if [ "$target" = "$host" ]; then
    # Without --target, which would select another build directory than that of `make run`.
    set --
    built=$directory/release emulator=
else
    set -- --target "$target"
    built=$directory/$target/release emulator=qemu-${target%%-*}
    export SETTEE_LINKER="${target%%-*}-linux-gnu-gcc"
    # A library may be linked as a shared library too (crc-fast), by the linker of the configuration.
    export "CARGO_TARGET_$(echo "$target" | tr 'a-z-' 'A-Z_')_LINKER=$SETTEE_LINKER"
    if command -v rustup >/dev/null 2>&1; then rustup target add "$target"; fi
fi
# Kernels for arm64 have pages of 4, 16 or 64 KiB. jemalloc supports pages up to the size that it is compiled for.
case "$target" in aarch64-*) export JEMALLOC_SYS_WITH_LG_PAGE=16 ;; esac
# `cargo rustc` applies these flags to the last crate only, so the other crates are not compiled again.
cargo rustc --release --locked --package settee-server --features wasm,bucket --bin settee --target-dir "$directory" "$@" -- \
    -C target-feature=+crt-static -C relocation-model=static -C strip=symbols \
    -C linker="$PWD/packaging/static-cc.sh"
program=$built/settee
if readelf --program-headers "$program" | grep -q INTERP; then
    echo "$program still needs shared libraries:" >&2
    readelf --dynamic "$program" | grep NEEDED >&2
    exit 1
fi
mkdir -p "$(dirname "$file")"
# Copied to a temporary name and renamed, because the old program may be running.
cp "$program" "$file.new"
mv -f "$file.new" "$file"
$emulator "$file" --version
ls -l "$file"
