#!/bin/sh
# The C++ compiler of the build (`CXX` in .cargo/config.toml): clang++ with precompiled headers of RocksDB. Each of its 340
# files includes 100,000 lines of headers, which take most of the compile time; precompiled headers and clang++ reduce it to
# about a third of g++'s. Without clang++, or if it fails for a file, the file is compiled normally. For another architecture,
# the build script passes --target to clang++, which uses the headers of that architecture's g++ (Debian package
# g++-aarch64-linux-gnu).
set -u

plain() {
  # cargo sets TARGET and HOST for build scripts. A g++ compiles for one architecture.
  compilers='clang++ c++ g++'
  if [ "${TARGET:-}" != "${HOST:-}" ]; then compilers="clang++ ${TARGET%%-*}-linux-gnu-g++"; fi
  for compiler in $compilers; do
    if command -v "$compiler" >/dev/null 2>&1; then exec "$compiler" "$@"; fi
  done
  echo "cxx.sh: found none of $compilers; on Debian: apt-get install clang g++" >&2
  exit 127
}

command -v clang++ >/dev/null 2>&1 || plain "$@"

# Sets object and source if the compiled file belongs to RocksDB.
object='' source='' previous=''
for argument in "$@"; do
  case "$argument" in rocksdb/*.cc) source="$argument" ;; esac
  if [ "$previous" = -o ]; then object="$argument"; fi
  previous="$argument"
done
if [ -z "$source" ] || [ -z "$object" ] || [ ! -f rocksdb/db/db_impl/db_impl.h ]; then exec clang++ "$@"; fi

# The precompiled headers are stored next to the objects. Concurrent compilers each write a temporary file; the last rename
# wins.
compiled="$(dirname "$object")/headers.pch"
if [ ! -f "$compiled" ]; then
  temporary="$compiled.$$"
  (
    skip='' count=$#
    while [ "$count" -gt 0 ]; do
      argument="$1" && shift && count=$((count - 1))
      if [ -n "$skip" ]; then skip='' && continue; fi
      case "$argument" in
        -o) skip=yes ;;
        -c | rocksdb/*.cc) ;;
        *) set -- "$@" "$argument" ;;
      esac
    done
    clang++ "$@" -fpch-instantiate-templates -x c++-header rocksdb/db/db_impl/db_impl.h -o "$temporary" 2>/dev/null
  ) && mv -f "$temporary" "$compiled"
fi
if [ -f "$compiled" ]; then clang++ -include-pch "$compiled" "$@" 2>/dev/null && exit 0; fi
plain "$@"
