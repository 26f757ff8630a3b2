#!/bin/bash
# The list of shared cache proxies is a file that changes while clients read: proxies join and leave, a proxy that left
# is stopped, the file is broken for a while, absent, and whole again. No error, no wrong byte, and only the keys of a
# proxy that is gone move.
. "$(dirname "$0")/lib-l2.sh"

make_images 6
serve_store P1 P2 P3 P4
start_proxy() { # start_proxy N
    local port=P$1
    proxy_config "proxy$1" "127.0.0.1:$P" "127.0.0.1:${!port}"
    sed -i "s|^http {|http { log_format uri '\$uri'; access_log $W/proxy$1.uris uri;|" "$W/proxy$1.conf"
    background nginx -c "$W/proxy$1.conf" -g 'daemon off;'
    declare -g "PROXY$1_PID=$BACKGROUND_PID"
    wait_for 60 answers "${!port}"
}
for n in 1 2 3 4; do start_proxy $n; done

# write_list N...: these proxies; the file is replaced at once
write_list() {
    local n port
    for n in "$@"; do port=P$n && echo "http://127.0.0.1:${!port}/lake"; done >"$W/members.new"
    mv "$W/members.new" "$W/members"
}
# members SERVER: their number
members() { of_proxies "$1" length; }
members_are() { [ "$(members "$1")" = "$2" ]; }
list_is_well() { [ "$(list_of "$1" '.error // ""')" = "" ]; }

images=()
for i in $(seq "$IMAGES"); do images+=("image=http://127.0.0.1:$P/lake/i$i"); done
# shellcheck disable=SC2034
proxies=("l2=$W/members")

echo "== only the keys of a proxy that is gone move"
# keys N: the packs that proxy N was asked for since `forget`; index nodes stay in the server's memory
keys() { { grep /packs/ "$W/proxy$1.uris" || true; } | LC_ALL=C sort -u; }
forget() { for n in 1 2 3 4; do : >"$W/proxy$n.uris"; done; }
write_list 1 2 3
serve a hedge=0
forget
read_all a
for n in 1 2 3 4; do keys $n >"$W/before$n"; done
[ -s "$W/before1" ] && [ -s "$W/before2" ] && [ -s "$W/before3" ] && [ ! -s "$W/before4" ] || fail "the proxies were not asked"
write_list 1 2
wait_for 60 members_are a 2
forget
read_all a
failures=$(($(count a l2_failures_total) + $(count a l2_fallthroughs_total)))
[ -z "$(keys 3)" ] || fail "the one that left was asked"
LC_ALL=C sort -u "$W/before3" "$W/before1" "$W/before2" >"$W/all"
LC_ALL=C sort -u <(keys 1) <(keys 2) | cmp - "$W/all" || [ $failures != 0 ] || fail "other keys than before"
for n in 1 2; do
    lost=$(LC_ALL=C comm -23 "$W/before$n" <(keys $n) | wc -l)
    came=$(LC_ALL=C comm -13 "$W/before$n" <(keys $n) | wc -l)
    strange=$(LC_ALL=C comm -13 "$W/before$n" <(keys $n) | LC_ALL=C comm -23 - "$W/before3" | wc -l)
    echo "proxy $n lost $lost of its $(wc -l <"$W/before$n") keys, got $came of the $(wc -l <"$W/before3") of the one that left, and $strange others"
    # A proxy that was too slow for a busy machine was skipped for a while.
    [ $failures != 0 ] || [ "$lost$strange" = 00 ] || fail "keys of a proxy that stayed have moved"
done

echo "== it joins again, another one as well, and the first leaves and is stopped, all while clients read"
serve b
start_reader b
asked() { [ "$(of_proxies b "map(select(.url | endswith(\":$1/lake\")).requests) | add // 0")" -gt 0 ]; }
wait_for 120 asked "$P1"
write_list 1 2 3 4
wait_for 60 members_are b 4
wait_for 120 asked "$P4"
write_list 2 3 4
wait_for 60 members_are b 3
sleep 0.2
kill_nginx "$PROXY1_PID"

echo "== a broken file, and none"
echo "http://127.0.0.1:$P2/lake many" >"$W/members.new" && mv "$W/members.new" "$W/members"
wait_for 60 list_says b "members, line 1: the weight must be"
members_are b 3 || fail "a broken file changed the members"
[ "$(status_of b .health)" = degraded ] || fail "health: not degraded"
metric_is "$W/b.control" "granary_l2_list_up{list=\"$W/members\"} 0" || fail "$(metrics "$W/b.control" | grep granary_l2_list)"
"$GRANARY" status "$W/b.control" >"$W/said" || true
grep -qF "line 1: the weight must be" "$W/said" || fail "status: $(cat "$W/said")"
rm "$W/members"
wait_for 60 list_says b "No such file"
members_are b 3 || fail "a file that is gone changed the members"

echo "== whole again, with weights"
{ echo "# the second has twice the disk"; echo "http://127.0.0.1:$P2/lake/ 2"; echo "http://127.0.0.1:$P3/lake 1"; } >"$W/members.new"
mv "$W/members.new" "$W/members"
wait_for 60 list_is_well b
members_are b 2 || fail "proxies: $(of_proxies b .)"
[ "$(of_proxies b 'map(.weight) | sort | join(" ")')" = "1 2" ] || fail "weights: $(of_proxies b .)"
goes_on b
end_reader a b
