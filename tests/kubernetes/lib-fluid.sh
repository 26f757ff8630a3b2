# shellcheck shell=bash
# Sourced after tests/lib.sh: CRDS, a directory with Fluid's own definitions. They are a MiB, and not in this tree: they come
# from its repository at one commit, once for a build tree, or from a directory that has them already (GRANARY_FLUID_CRDS).
# SUMS: what they must be.
COMMIT=a826600a
CRDS=${GRANARY_FLUID_CRDS:-$GRANARY_BUILD/tests/fluid-crds-$COMMIT}
SUMS=$GRANARY_SOURCE/tests/kubernetes/fluid-crds.sha256
if [ ! -d "$CRDS" ]; then
    mkdir "$W/crds"
    awk -v url="https://raw.githubusercontent.com/fluid-cloudnative/fluid/$COMMIT/config/crd/bases" \
        '{ print "url = " url "/" $2; print "remote-name" }' "$SUMS" >"$W/curl.conf"
    (cd "$W/crds" && curl -sSf --max-time 60 -K "$W/curl.conf") 2>"$W/err" ||
        skip "Fluid's definitions cannot be fetched ($(tail -1 "$W/err")): deploy/fluid is NOT checked. GRANARY_FLUID_CRDS=DIR names a directory with them"
    mv "$W/crds" "$CRDS"
fi
