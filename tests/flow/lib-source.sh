# shellcheck shell=bash
# Sourced by the tests of sources: an image built, read back with fsck.erofs and looked at; a build that is refused.

. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

command -v fsck.erofs >/dev/null || skip "no fsck.erofs here (apt-get install erofs-utils)"
unset http_proxy https_proxy

# built NAME SOURCE OPTION...: an image, extracted below $W/back-NAME
built() {
    local name=$1
    shift
    "$GRANARY" build --quiet "$@" "$W/store/$name" >"$W/out" 2>&1 || { cat "$W/out" >&2; fail "build of $name"; }
    "$GRANARY" export --quiet "$W/store/$name" "$W/image" >"$W/null"
    rm -rf "$W/back-$name"
    fsck.erofs --extract="$W/back-$name" "$W/image" >"$W/null" || fail "fsck.erofs found errors in $name"
}

# listed NAME: its paths on one line
listed() { (cd "$W/back-$1" && find . -mindepth 1 -printf '%P%y\n' | sed 's/f$//; s/d$/\//' | sort | xargs); }

# refused SENTENCE-PART SOURCE OPTION...: exit 1 or 2, that sentence in $W/out
refused() {
    local part=$1 status=0
    shift
    "$GRANARY" build --quiet "$@" "$W/store/refused" >"$W/out" 2>&1 || status=$?
    case $status in
        0) fail "accepted: $*" ;;
        1 | 2) ;;
        *) cat "$W/out" >&2; fail "exit $status: $*" ;;
    esac
    grep -qF -- "$part" "$W/out" || { cat "$W/out" >&2; fail "$*: not '$part'"; }
}

# nothing_refused_is_there: of all that was refused nothing has a name
nothing_refused_is_there() {
    "$GRANARY" images "$W/store" >"$W/images"
    ! grep refused "$W/images" || fail "a failed build published something"
}
