#!/bin/sh
# The linker of static.sh. RocksDB's crate asks for a shared libstdc++, and rustc then says -Bdynamic, after which a program that is
# linked with -static needs shared libraries all the same. This leaves that out where -static is asked for.
case " $* " in
*" -static "*)
    for argument; do
        shift
        [ "$argument" = -Wl,-Bdynamic ] || set -- "$@" "$argument"
    done
    ;;
esac
exec cc "$@"
