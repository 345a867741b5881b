#!/bin/sh
# Builds a settee for x86-64 Linux that needs no shared library: glibc, libstdc++ and RocksDB are linked in.
#
#   packaging/static.sh [FILE]     FILE is where the program goes (static/settee in cargo's target directory)
#
# Needs what every build needs (packages g++, clang, libclang-dev, make; Node.js 20.19 with npm) and libc6-dev, which brings
# the static glibc, as the package of Debian and Ubuntu does. Everything but the last crate is what `make run` compiles as
# well: what of it is there is used, RocksDB above all (docs/adr/20-operation-and-packages.md).
#
# With musl instead of glibc a C++ compiler for musl is needed, which distributions do not have; that was not tried.
set -eu
cd "$(dirname "$0")/.."
directory=${CARGO_TARGET_DIR:-target}
file=${1:-$directory/static/settee}
# These flags are for the last crate and the linker only, so nothing else is compiled for them.
cargo rustc --release --locked --package settee-server --features wasm --bin settee --target-dir "$directory" -- \
    -C target-feature=+crt-static -C relocation-model=static -C strip=symbols \
    -C linker="$PWD/packaging/static-cc.sh"
program=$directory/release/settee
if ldd "$program" 2>/dev/null | grep -q '=>'; then
    echo "$program still needs shared libraries:" >&2
    ldd "$program" >&2
    exit 1
fi
mkdir -p "$(dirname "$file")"
# By another name first: the old one may be running.
cp "$program" "$file.new"
mv -f "$file.new" "$file"
"$file" --version
ls -l "$file"
