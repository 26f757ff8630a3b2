#!/bin/bash
# The dashboard is what Grafana's own types say that a dashboard is. Grafana itself is in no repository of Debian's;
# flow/metrics-prometheus asks a real Prometheus every query of the dashboard.
# ctest: long
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
[[ $(go env GOVERSION 2>"$W/null") =~ ^go1\.(2[1-9]|[3-9][0-9]) ]] || skip "no Go 1.21 or later here: nothing compares the dashboard with Grafana's types"

cp "$GRANARY_SOURCE"/tests/tools/dashboard-check/* "$W"
(cd "$W" && go mod download) >"$W/go.log" 2>&1 || skip "no Go modules here: $(tail -1 "$W/go.log")"
(cd "$W" && go build -mod=readonly -o dashboard-check .) >"$W/go.log" 2>&1 || fail "dashboard-check does not build: $(tail "$W/go.log")"
dashboard=$GRANARY_SOURCE/deploy/grafana/granary.json
"$W/dashboard-check" "$dashboard" >"$W/out" 2>"$W/err" || fail "$(cat "$W/err")"
[ "$(cat "$W/out")" = "$(jq '.panels | length' "$dashboard") panels" ] || fail "$(cat "$W/out")"

echo "== what is wrong is found"
while read -r change; do
    jq "$change" "$dashboard" >"$W/bad.json"
    ! "$W/dashboard-check" "$W/bad.json" >"$W/out" 2>&1 || fail "Grafana's types allow $change"
done <<'CHANGES'
.panels[0].targets[0].express = "up"
.panels[0].gridPos.w = "wide"
.panels[0].options.legends = {}
del(.panels[0].options.tooltip.mode)
del(.templating)
CHANGES
