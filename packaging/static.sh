#!/bin/sh
# Builds a settee for x86-64 Linux that needs no shared library: glibc, libstdc++ and RocksDB are linked statically.
#
#   packaging/static.sh [FILE]     FILE: path of the program (default: static/settee in cargo's target directory)
#
# Requires the packages of every build (g++, clang, libclang-dev, make; Node.js 20.19 with npm) and libc6-dev, which contains
# the static glibc on Debian and Ubuntu. All crates except the last one are shared with `make run`, so RocksDB is not compiled
# again (docs/adr/20-operation-and-packages.md). musl is not supported, because distributions have no C++ compiler for it.
set -eu
cd "$(dirname "$0")/.."
directory=${CARGO_TARGET_DIR:-target}
file=${1:-$directory/static/settee}
# `cargo rustc` applies these flags to the last crate only, so the other crates are not compiled again.
cargo rustc --release --locked --package settee-server --features wasm,bucket --bin settee --target-dir "$directory" -- \
    -C target-feature=+crt-static -C relocation-model=static -C strip=symbols \
    -C linker="$PWD/packaging/static-cc.sh"
program=$directory/release/settee
if ldd "$program" 2>/dev/null | grep -q '=>'; then
    echo "$program still needs shared libraries:" >&2
    ldd "$program" >&2
    exit 1
fi
mkdir -p "$(dirname "$file")"
# Copied to a temporary name and renamed, because the old program may be running.
cp "$program" "$file.new"
mv -f "$file.new" "$file"
"$file" --version
ls -l "$file"
