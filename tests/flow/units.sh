#!/bin/bash
# The units and rules in deploy/ are understood by systemd: systemd-analyze verify finds nothing to say, and every
# command line in them is one that granary takes.
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
command -v systemd-analyze >"$W/null" || skip "no systemd-analyze here (apt-get install systemd)"

mkdir "$W/units"
for unit in "$GRANARY_SOURCE"/deploy/*.service "$GRANARY_SOURCE"/deploy/*.timer; do
    sed "s|/usr/bin/granary|$GRANARY|" "$unit" >"$W/units/${unit##*/}"
done
sed "s|/usr/sbin/granary-csi|$GRANARY_BUILD/csi/granary-csi|" "$GRANARY_SOURCE/deploy/csi/granary-csi.service" >"$W/units/granary-csi.service"
export SYSTEMD_UNIT_PATH=$W/units:
for unit in "$W"/units/*; do
    name=${unit##*/}
    systemd-analyze verify --man=no "${name/@./@test.}" >"$W/said" 2>&1 || fail "$name: $(cat "$W/said")"
    ! grep . "$W/said" || fail "$name"
done

echo "== it would have something to say"
sed -i 's/^Restart=.*/&\nRestrat=always/' "$W/units/granary-serve@.service"
systemd-analyze verify --man=no granary-serve@test.service >"$W/said" 2>&1 || true
grep -q Restrat "$W/said" || fail "a wrong line is passed over"

echo "== the commands are granary's"
"$GRANARY" help --all >"$W/options"
lines=0
while read -r _ verb rest; do
    lines=$((lines + 1))
    [ "$verb" != cache ] || { verb+=" ${rest%% *}"; rest=${rest#* }; }
    grep -q "^$verb\( \|$\)" "$W/options" || fail "deploy/ has a unit with granary $verb"
    for option in $(grep -oE -- '--[a-z-]+' <<<"$rest"); do
        grep -q "^$verb $option\( \|$\)" "$W/options" || fail "deploy/ has a unit with granary $verb $option"
    done
done < <(grep -hE '^Exec[A-Za-z]*=-?/usr/bin/granary ' "$GRANARY_SOURCE"/deploy/*.service)
[ $lines = 8 ] || fail "other than eight lines run granary: $lines"
