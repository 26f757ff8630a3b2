#!/bin/bash
# What the scripts of the tests, ./test and ./quickstart call comes from a package that ./test installs, or that every
# Debian has (Essential, or of priority required). Words in the place of a command are looked up in PATH; what is no
# program there, as functions of the scripts, is passed over.
set -euo pipefail
. "$GRANARY_SOURCE/tests/style/lib.sh"
command -v dpkg >/dev/null || skip "no dpkg here: packages are Debian's"
. "$GRANARY_SOURCE/tools/packages.sh"
# Words of here documents, of the guests' busybox, and the test cluster's own kubectl.
NO_COMMANDS='^(as|print|see|size|write|ifconfig|route|kubectl)$'

# called: "WORD PACKAGE" for every word that stands where a command does in the scripts and is a program here
called() {
    local files word program
    mapfile -t files < <(project_scripts | grep -E '^\./(tests/|tools/|[^/]*$)')
    grep -ohE '(^|[|;&(!]|\b(if|then|do|else|while|until|background|timeout [0-9]+|wait_for [0-9]+)) *[a-z][a-z0-9._+-]+ ' "${files[@]}" |
        sed -E 's/ $//; s/.*[^a-z0-9._+-]//' | grep -vE "$NO_COMMANDS" | LC_ALL=C sort -u |
        while read -r word; do
            program=$(PATH=/usr/bin:/usr/sbin:/bin:/sbin type -P "$word") || continue
            printf '%s %s\n' "$word" "$program" "$word" "$(readlink -f "$program")"
        done | sort -u >"$scratch/programs"
    # merged /usr: a package may have it as /bin/NAME
    { awk '{ print $2; sub("^/usr", "", $2); print $2 }' "$scratch/programs" | sort -u | xargs dpkg -S 2>/dev/null || true; } |
        awk -F': ' 'NR == FNR { split($1, names, ","); sub("^/usr", "", $2); package[$2] = names[1]; next }
            { split($0, w, " "); sub("^/usr", "", w[2]); if (w[2] in package) print w[1], package[w[2]] }' - "$scratch/programs" |
        sed 's/:amd64$//' | sort -u
}

# missing PACKAGE...: words of which no package is among these, nor in every Debian
missing() {
    { printf '%s\n' "$@"; dpkg-query -W -f '${Package} ${Essential} ${Priority}\n' | awk '$2 == "yes" || $3 == "required" { print $1 }'; } |
        awk 'NR == FNR { good[$1] = 1; next } { from[$1] = from[$1] " " $2 } $2 in good { fine[$1] = 1 }
            END { for (w in from) if (!(w in fine)) print w ": in" from[w] ", which tools/packages.sh does not name" }' - "$scratch/called"
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
called >"$scratch/called"
[ "$(wc -l <"$scratch/called")" -ge 50 ] || { echo "the scripts call hardly anything"; exit 1; }
read -r -d '' -a known <<<"${PACKAGES[build]} ${PACKAGES[run]} ${PACKAGES[style]} ${PACKAGES[test]} ${PACKAGES[vm]} ${PACKAGES[package]}" || true
# What those depend on, directly: default-jre-headless has no java of its own.
mapfile -t depends < <(dpkg-query -W -f '${Pre-Depends}, ${Depends}, ' "${known[@]}" 2>/dev/null |
    tr ',|' '\n\n' | sed -E 's/^ *([a-z0-9.+-]+).*/\1/' | sort -u)
mapfile -t but_jq < <(printf '%s\n' "${known[@]}" "${depends[@]}" | grep -vx jq)
[ "$(missing "${but_jq[@]}")" = "jq: in jq, which tools/packages.sh does not name" ] || { missing "${but_jq[@]}"; echo "where jq is taken away"; exit 1; }
