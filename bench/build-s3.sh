#!/bin/bash
# build-s3.sh [FILES]: building an image from S3 over a 1 Gbit/s link with 10 ms round trip, against plain download.
#
#   a. S3 -> file store   against downloading the same objects over 32 kept-alive connections, `rclone copy`, and
#                         itself with --jobs 32 instead of as many as it finds best
#   b. S3 -> S3 store     against that download plus an upload of the same bytes (64 pieces, 8 at a time)
#
# Contenders take turns, REPEATS times (default 3), medians are compared; the first round, which fills the front
# server's memory, is not counted. FILES: default 20,000 (2.0 GB).
. "$(dirname "$(readlink -f "$0")")/lib.sh"
files=${1:-20000}

data=$(data_set "$files" 200)
bytes=$(find "$data" -type f -printf '%s\n' | awk '{ n += $1 } END { printf "%.0f", n }')
(cd "$data" && find . -type f -printf 'in/%P\n' | sort) >"$W/list"
link_up 5 1000
servers_up
note "uploading $files objects from the server's side"
in_server "$SOURCE/tests/servers/s3put.py" tree data in "$data"
note "filling the front server's memory"
curl_each in_server 8 "$W/prime" "$W/list"
rm -r "$W/prime"
(cd "$data" && find . -type f -print0 | sort -z | xargs -0 cat) >"$W/all"
split -n 64 -d -a 3 "$W/all" "$W/piece."
rm "$W/all"

granary_file() { in_client "$GRANARY" build s3://data/in "file://$W/store/set" --quiet; }
granary_file_32() { in_client "$GRANARY" build s3://data/in "file://$W/store/set" --quiet --jobs 32; }
granary_s3() { in_client "$GRANARY" build s3://data/in "s3://images/store-$round/set" --quiet; }
download() { curl_each in_client 32 "$W/out" "$W/list"; }
upload() {
    in_client sh -c 'printf "%s\n" "$1"/piece.* | xargs -P 8 -n 8 sh -c '"'"'for f; do
        curl -sSf --noproxy "*" --aws-sigv4 aws:amz:us-east-1:s3 --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" \
            -H "x-amz-content-sha256: UNSIGNED-PAYLOAD" -T "$f" -o /dev/null "$AWS_ENDPOINT_URL/images/up/${f##*/}" || exit 255
        done'"'"' sh' sh "$W"
}
rclone_copy() {
    in_client rclone --config /dev/null --s3-provider Ceph --s3-env-auth --s3-endpoint "$AWS_ENDPOINT_URL" -q copy \
        --transfers 32 --checkers 32 --use-server-modtime --s3-no-head-object --no-traverse :s3:data/in "$W/out"
}

# What a round put there: the server's memory would not hold it twice.
empty_images() {
    in_server rclone --config /dev/null --s3-provider Ceph --s3-env-auth --s3-endpoint http://10.77.0.2:7480 -q \
        delete --transfers 32 --checkers 32 :s3:images
    sleep 5
}

declare -A T
measure() {
    rm -rf "$W/out" "$W/store"
    drop_caches
    local s
    s=$(seconds "$1")
    note "round $round: $1 $s s"
    [ "$round" = 0 ] || T[$1]+=" $s"
}
for round in $(seq 0 "$REPEATS"); do
    for contender in granary_file download granary_file_32 granary_s3 upload; do measure $contender; done
    empty_images
done
round=1 measure rclone_copy
rm -rf "$W/out" "$W/store"

# shellcheck disable=SC2086
{
    file=$(median ${T[granary_file]}) plain=$(median ${T[download]}) s3=$(median ${T[granary_s3]}) up=$(median ${T[upload]})
    rclone=$(median ${T[rclone_copy]}) fixed=$(median ${T[granary_file_32]})
}
both=$(awk -v a="$plain" -v b="$up" 'BEGIN { print a + b }')
echo "$files files, $bytes bytes, 1 Gbit/s, 10 ms round trip, median of $REPEATS"
printf '%-42s %8s %8s\n' what seconds MB/s
printf '%-42s %8s %8s\n' "granary build s3 -> file store" "$file" "$(megabytes "$bytes" "$file")" \
    "the same with --jobs 32" "$fixed" "$(megabytes "$bytes" "$fixed")" \
    "download, 32 kept-alive connections" "$plain" "$(megabytes "$bytes" "$plain")" \
    "rclone copy --transfers 32 (once)" "$rclone" "$(megabytes "$bytes" "$rclone")" \
    "granary build s3 -> s3 store" "$s3" "$(megabytes "$bytes" "$s3")" \
    "download, then upload of the same bytes" "$both" "$(megabytes "$bytes" "$both")"
echo "throughput, granary / download:                $(ratio "$plain" "$file")"
echo "throughput, granary s3 -> s3 / down plus up:   $(ratio "$both" "$s3")"
