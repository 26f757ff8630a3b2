# shellcheck shell=bash
# Sourced by the tests of the Helm chart, after tests/lib.sh: HELM, which Go builds once for a build tree, and CHART.
HELM_VERSION=v3.22.0
export HELM=$GRANARY_BUILD/tests/helm-$HELM_VERSION/helm
export CHART=$GRANARY_SOURCE/deploy/helm/granary

if [ ! -x "$HELM" ]; then
    command -v go >"$W/null" || skip "no Go here, which builds Helm: the chart is not tested"
    GOBIN=${HELM%/*} go install "helm.sh/helm/v3/cmd/helm@$HELM_VERSION" >"$W/go.log" 2>&1 ||
        skip "Go cannot install Helm $HELM_VERSION: $(tail -1 "$W/go.log")"
fi
# what helm itself keeps
export HELM_CACHE_HOME=$W/helm HELM_CONFIG_HOME=$W/helm HELM_DATA_HOME=$W/helm
