#!/bin/bash
# A real Prometheus scrapes running servers: promtool finds nothing wrong with the document and the alerts, every metric
# of it arrives, the values come back through the query API, and every query of the dashboard has an answer. An export's
# name may have any bytes.
# ctest: long
. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
for program in prometheus promtool; do
    command -v $program >"$W/null" || skip "no $program here (apt-get install prometheus): no real Prometheus reads the metrics"
done
get() { curl -sSf --noproxy '*' --max-time 60 "$@"; }

# port_of PID: where a process listens on TCP, when it is one port
port_of() { ss -Hltnp | sed -n "s/.* 127\.0\.0\.1:\([0-9]*\) .*[^0-9]pid=$1,.*/\1/p"; }
has_port() { [ -n "$(port_of "$1")" ]; }

mkdir -p "$W/tree"
head -c 3000000 /dev/urandom >"$W/tree/file"
"$GRANARY" build -q "$W/tree" "$W/store/one" >"$W/built"
"$GRANARY" build -q "$W/tree" "$W/store/two" >"$W/built"

echo "== granary serve --metrics: the document of the control socket over TCP, and nothing else"
background "$GRANARY" serve "$W/store/one" "$W/store/two" --socket "$W/nbd.sock" --cache "$W/cache:64M" --warm none \
    --disk-timeout "$DISK_TIMEOUT" --metrics 127.0.0.1:0 >"$W/serve.out" 2>"$W/serve.err"
SERVE=$BACKGROUND_PID
wait_for 60 grep -q '^serving' "$W/serve.out"
SERVED=$(port_of "$(pgrep -P "$SERVE")")
# as the follower of a directory does
get -X PUT --unix-socket "$W/nbd.sock.control" "http://granary/followed?dir=/data/faces&versions=2&switches=1&behind=0" >"$W/null"
for _ in 1 2; do nbdcopy "nbd+unix:///one?socket=$W/nbd.sock" null:; done
get "http://127.0.0.1:$SERVED/metrics" >"$W/document"
get --unix-socket "$W/nbd.sock.control" http://granary/metrics >"$W/control"
diff <(grep -v '^#' "$W/document" | sed 's/ [^ ]*$//') <(grep -v '^#' "$W/control" | sed 's/ [^ ]*$//') || fail "other metrics than the control socket's"
! get "http://127.0.0.1:$SERVED/status" >"$W/null" 2>&1 || fail "/status over TCP"
! get -X POST "http://127.0.0.1:$SERVED/cache/evict?all=1" >"$W/null" 2>&1 || fail "/cache/evict over TCP"

echo "== an address that is taken is said in one sentence"
! timeout 60 "$GRANARY" serve "$W/store/two" --socket "$W/two.sock" --metrics "127.0.0.1:$SERVED" 2>"$W/err" || fail "two servers on one port"
grep -q "another program listens on 127.0.0.1:$SERVED; end it or choose another port" "$W/err" || fail "$(cat "$W/err")"

echo "== the clients' connections, threads and replies, in granary status, too"
for line in 'granary_front_connections_limit 1024' 'granary_front_threads_limit 256' 'granary_front_reply_bytes_limit 16777216'; do
    grep -qx "$line" "$W/document" || fail "no $line: $(grep ^granary_front "$W/document")"
done
"$GRANARY" status "$W/nbd.sock.control" >"$W/status" || fail "granary status: $(cat "$W/status")"
grep -qE '^clients: [0-9]+ of at most 1024 connections, [0-9]+ of 256 threads, replies .* of 16\.0 MiB$' "$W/status" || fail "$(cat "$W/status")"

echo "== promtool"
promtool check metrics <"$W/document" >"$W/promtool" 2>&1 || fail "promtool: $(cat "$W/promtool")"
sed 's/^granary_build_info{version=/granary_build_info{version:/' "$W/document" >"$W/broken"
! promtool check metrics <"$W/broken" >"$W/promtool" 2>&1 || fail "promtool says yes to anything"
promtool check rules "$GRANARY_SOURCE/deploy/prometheus/granary.rules.yml" >"$W/promtool" 2>&1 || fail "promtool: $(cat "$W/promtool")"

echo "== each alert fires when it should, and not when all is well"
tests=("$GRANARY_SOURCE"/tests/data/granary.rules*.test.yml)
promtool test rules "${tests[@]}" >"$W/promtool" 2>&1 || fail "promtool: $(cat "$W/promtool")"
sed "s|\.\./\.\./deploy/prometheus/granary.rules.yml|$W/rules.yml|" "${tests[0]}" >"$W/rules.test.yml"
sed 's/for: 6h/for: 9h/' "$GRANARY_SOURCE/deploy/prometheus/granary.rules.yml" >"$W/rules.yml"
! promtool test rules "$W/rules.test.yml" >"$W/promtool" 2>&1 || fail "promtool takes an alert that comes late"

echo "== a server whose export has an odd name"
odd=$(printf 'a"b\\c\xff')
serve_unix "$W/odd.sock" "image=$odd=$W/store/one" memory=16M metrics=127.0.0.1:0
ODD=$(port_of "$SERVER_PID")
nbdcopy "nbd+unix:///?socket=$W/odd.sock" null:

echo "== Prometheus"
cat >"$W/prometheus.yml" <<YML
global: {scrape_interval: 1s, scrape_timeout: 1s}
scrape_configs:
  - job_name: granary
    static_configs: [{targets: ["127.0.0.1:$SERVED", "127.0.0.1:$ODD"]}]
YML
promtool check config "$W/prometheus.yml" >"$W/null" || fail "the configuration"
background prometheus --config.file="$W/prometheus.yml" --storage.tsdb.path="$W/tsdb" --web.listen-address=127.0.0.1:0 \
    --log.level=warn >"$W/prometheus.log" 2>&1
PROMETHEUS=$BACKGROUND_PID
wait_for 60 has_port "$PROMETHEUS"
api=http://127.0.0.1:$(port_of "$PROMETHEUS")/api/v1

# value QUERY: what the query gives now; nothing when that is not one value
value() { get "$api/query" --data-urlencode "query=$1" | jq -r '.data.result | if length == 1 then .[0].value[1] else empty end'; }
gives() { [ "$(value "$1")" = "$2" ]; }
all_up() { gives 'sum(up{job="granary"})' 2; }
wait_for 60 all_up

# of NAME{LABELS}: its value in the served document
of() { get "http://127.0.0.1:$SERVED/metrics" | awk -v line="$1" 'index($0, line " ") == 1 { print $NF }'; }
size=$(of 'granary_export_read_bytes_total{export="one"}')
[ "$size" -gt 6000000 ] || fail "two copies of 3 MB were $size bytes read"
# of_instance NAME{LABELS}: with the served instance among its labels
of_instance() { case $1 in *"}") echo "${1%?},$instance}" ;; *) echo "$1{$instance}" ;; esac; }
instance="instance=\"127.0.0.1:$SERVED\""
for metric in 'granary_export_read_bytes_total{export="one"}' 'granary_export_reads_total{export="two"}' \
    'granary_export_served_bytes_total{export="one",from="store"}' 'granary_export_served_total{export="one",from="disk"}' \
    granary_read_seconds_count granary_cache_capacity_bytes granary_store_get_seconds_count 'granary_read_seconds_bucket{le="+Inf"}'; do
    wait_for 60 gives "$(of_instance "$metric")" "$(of "$metric")"
done
wait_for 60 gives "sum(granary_export_served_bytes_total{export=\"one\",$instance})" "$size" # from all sources
wait_for 60 gives 'granary_export_reads_total{export="a\"b\\c\\xff"} > bool 0' 1
wait_for 60 gives "histogram_quantile(0.99, granary_read_seconds_bucket{$instance}) > bool 0" 1

echo "== every metric of the document has arrived"
get "$api/label/__name__/values" | jq -r '.data[]' | sort >"$W/arrived"
grep -v '^#' "$W/document" | sed 's/[{ ].*//' | sort -u >"$W/names"
[ "$(wc -l <"$W/names")" -ge 50 ] || fail "hardly any metrics: $(cat "$W/names")"
missing=$(comm -23 "$W/names" "$W/arrived")
[ -z "$missing" ] || fail "Prometheus does not have: $missing"
! grep -qi 'ingest\|append failed\|level=error' "$W/prometheus.log" || fail "Prometheus complains: $(cat "$W/prometheus.log")"

echo "== every query of the dashboard has an answer"
dashboard=$GRANARY_SOURCE/deploy/grafana/granary.json
jq -r '.panels[].targets[].expr' "$dashboard" | sed 's/\$__rate_interval/5m/g; s/\$instance/.*/g' >"$W/queries"
[ "$(wc -l <"$W/queries")" -ge 30 ] || fail "hardly any queries"
! grep -n '\$' "$W/queries" || fail "variables that the test does not know"
answered() { get "$api/query" --data-urlencode "query=$1" | jq -e '.data.result | length > 0' >"$W/null"; }
while read -r query; do wait_for 60 answered "$query"; done <"$W/queries"
! answered 'rate(granary_nothing_total[5m])' || fail "anything has an answer"
