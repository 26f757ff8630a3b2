#!/bin/bash
# docs/reference/metrics.md has every counter of the program with the help that the program gives, and no other. The
# dashboard asks for metrics that are there, with labels that they have, and so do the alerts and the other pages;
# flow/metrics-prometheus asks a Prometheus its queries.
set -euo pipefail
. "$GRANARY_SOURCE/tests/style/lib.sh"

# metrics_of FILE...: "| `NAME` | HELP |" for every counter_row in these sources
metrics_of() {
    cat "$@" | tr '\n' ' ' | grep -oE '\{ *"granary_[a-z0-9_]+", *"[^"]*"' |
        sed -E 's/\{ *"([^"]*)", *"([^"]*)"/| `\1` | \2 |/' | LC_ALL=C sort
}

# check SOURCES TABLE
check() { diff <(metrics_of "$1"/*.c) <(grep '^| `granary_' "$2" | LC_ALL=C sort); }

bad=$(mktemp -d)
trap 'rm -rf "$bad"' EXIT
printf 'x = {"granary_a_total",\n "A.", 1};\n' >"$bad/a.c"
printf '| `granary_a_total` | A. |\n' >"$bad/table"
check "$bad" "$bad/table" || { echo "the check fails on a good tree"; exit 1; }
printf '| `granary_a_total` | B. |\n' >"$bad/table"
! check "$bad" "$bad/table" >/dev/null || { echo "the check does not see another help"; exit 1; }

mapfile -t sources < <(grep -lE '"granary_[a-z0-9_]+",' -r --include='*.c' cachecore server)
[ ${#sources[@]} -ge 4 ] || { echo "counters in ${#sources[@]} files only"; exit 1; }
mkdir "$bad/sources"
for file in "${sources[@]}"; do cp "$file" "$bad/sources/${file//\//-}"; done
check "$bad/sources" docs/reference/metrics.md || { echo "docs/reference/metrics.md (>) is not what the program says (<)"; exit 1; }

# asked_by DASHBOARD: the metrics of its queries, a histogram by its own name
asked_by() {
    jq -r '.panels[].targets[].expr, (.templating.list[] | select(.type == "query") | .query)' "$1" |
        grep -oE 'granary_[a-z0-9_]+' | sed -E 's/_seconds_(bucket|sum|count)$/_seconds/' | LC_ALL=C sort -u
}
# unknown_metrics DASHBOARD: those that docs/reference/metrics.md does not have
unknown_metrics() { comm -23 <(asked_by "$1") <(grep -oE '`granary_[a-z0-9_]+' docs/reference/metrics.md | tr -d '`' | LC_ALL=C sort -u); }

dashboard=deploy/grafana/granary.json
sed 's/granary_fetch_queued/granary_fetch_quite_queued/' $dashboard >"$bad/dashboard"
[ "$(unknown_metrics "$bad/dashboard")" = granary_fetch_quite_queued ] || { echo "the check does not see a metric that is not there"; exit 1; }
[ "$(asked_by $dashboard | wc -l)" -ge 30 ] || { echo "the dashboard asks for hardly anything"; exit 1; }
unknown=$(unknown_metrics $dashboard)
[ -z "$unknown" ] || { echo "$dashboard asks for what is not in docs/reference/metrics.md: $unknown"; exit 1; }

# told_by FILE...: the metrics that the pages and the alerts name, a histogram by its own name
told_by() { cat "$@" | grep -oE '\bgranary_[a-z0-9_]+[a-z0-9]\b' | sed -E 's/_seconds_(bucket|sum|count)$/_seconds/' | LC_ALL=C sort -u; }
# unknown_in FILE...: those that docs/reference/metrics.md does not have, but a family's name (granary_front_*)
unknown_in() {
    comm -23 <(told_by "$@") <(grep -oE '`granary_[a-z0-9_]+' docs/reference/metrics.md | tr -d '`' | LC_ALL=C sort -u) | grep -vx granary_front || true
}
sed 's/granary_health ==/granary_healthy ==/' deploy/prometheus/granary.rules.yml >"$bad/rules"
[ "$(unknown_in "$bad/rules")" = granary_healthy ] || { echo "the check does not see an alert on a metric that is not there"; exit 1; }
mapfile -t pages < <(project_files '*.md' | grep -E '^\./docs/')
unknown=$(unknown_in "${pages[@]}" deploy/prometheus/granary.rules.yml)
[ -z "$unknown" ] || { echo "docs/ or the alerts name what is not in docs/reference/metrics.md: $unknown"; exit 1; }

# untold RULES: the alerts that the table of docs/operations/monitoring.md lacks, and those that no test lets fire or
# keeps silent
untold() {
    local alert
    while read -r alert; do
        grep -q "^| \`$alert\` |" docs/operations/monitoring.md || echo "monitoring.md has no $alert"
        grep -A 1 -h "alertname: $alert\$" tests/data/granary.rules*.test.yml | grep 'exp_alerts:$' >"$bad/null" || echo "no test lets $alert fire"
        grep -A 1 -h "alertname: $alert\$" tests/data/granary.rules*.test.yml | grep 'exp_alerts: \[\]' >"$bad/null" || echo "no test keeps $alert silent"
    done < <(sed -n 's/^ *- alert: //p' "$1")
}
rules=deploy/prometheus/granary.rules.yml
sed 's/alert: GranaryRefused/alert: GranaryRefuses/' $rules >"$bad/rules"
[ "$(untold "$bad/rules" | wc -l)" = 3 ] || { echo "the check does not see an alert that nobody tells of"; exit 1; }
found=$(untold $rules)
[ -z "$found" ] || { echo "$found"; exit 1; }

# lost_runbooks RULES: alerts' runbooks that are no section of a page; one a line
lost_runbooks() {
    local page anchor
    while IFS='#' read -r page anchor; do
        sed -n 's/^##* //p' "$page" | tr 'A-Z ' 'a-z-' | tr -dc 'a-z0-9_\n-' | grep -x -- "$anchor" >"$bad/null" || echo "$page#$anchor"
    done < <(sed -n 's/^ *runbook: //p' "$1" | sort -u)
}
sed 's/#a-server-is-gone/#a-server-is-here/' $rules >"$bad/rules"
[ "$(lost_runbooks "$bad/rules")" = "docs/operations/runbook.md#a-server-is-here" ] || { echo "the check does not see a runbook that is not there"; exit 1; }
[ "$(grep -c '^ *runbook: ' $rules)" = "$(grep -c 'alert:' $rules)" ] || { echo "an alert of $rules has no runbook"; exit 1; }
lost=$(lost_runbooks $rules)
[ -z "$lost" ] || { echo "$rules: no such section: $lost"; exit 1; }
