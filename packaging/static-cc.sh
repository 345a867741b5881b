#!/bin/sh
# The linker of static.sh. RocksDB's crate requests a shared libstdc++, for which rustc passes -Bdynamic, and a program that is
# linked with -static then needs shared libraries. This script removes -Bdynamic if -static is present.
case " $* " in
*" -static "*)
    for argument; do
        shift
        [ "$argument" = -Wl,-Bdynamic ] || set -- "$@" "$argument"
    done
    ;;
esac
# The compiler for another architecture, or this machine's.
exec "${SETTEE_LINKER:-cc}" "$@"
