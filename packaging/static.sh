#!/bin/sh
# Builds a settee for x86-64 Linux that needs no shared library: glibc, libstdc++ and RocksDB are linked in.
#
#   packaging/static.sh [DIRECTORY]     DIRECTORY is cargo's target directory (target/static)
#
# Needs what every build needs (packages g++, clang, libclang-dev, make; Node.js 20.19 with npm) and libc6-dev, which brings the static glibc, as the
# package of Debian and Ubuntu does. RocksDB is compiled anew, which takes about ten minutes on two cores; if a compiled
# librocksdb.a of the same version is at hand, ROCKSDB_LIB_DIR=… ROCKSDB_STATIC=1 saves that.
#
# With musl instead of glibc a C++ compiler for musl is needed, which distributions do not have; that was not tried.
# Names of hosts (for [tracing] endpoint, replication) are still looked up through the system's libnss at run time,
# as with every static program of glibc; addresses always work.
set -eu
cd "$(dirname "$0")/.."
directory=${1:-target/static}
target=x86_64-unknown-linux-gnu
# Only the program itself is linked like this: procedural macros stay shared, which --target sees to.
export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER="$PWD/packaging/static-cc.sh"
RUSTFLAGS="${RUSTFLAGS:-} -C target-feature=+crt-static -C relocation-model=static" \
    cargo build --release --locked --package settee-server --target "$target" --target-dir "$directory"
program=$directory/$target/release/settee
if ldd "$program" 2>/dev/null | grep -q '=>'; then
    echo "$program still needs shared libraries:" >&2
    ldd "$program" >&2
    exit 1
fi
"$program" --version
echo "$program"
