#!/bin/bash
# ctest: lock=hdfs long
# Two real NameNodes, one active: the standby one is passed over, and a failover in the middle of a build, from and into
# HDFS, changes nothing in the image.
export HA=1
. "${GRANARY_SOURCE:?run by ctest}/tests/flow/lib-hdfs.sh"

mkdir "$W/tree"
for i in $(seq 100); do head -c $((RANDOM % 9000)) /dev/urandom >"$W/tree/$i"; done
head -c 8000000 /dev/urandom >"$W/tree/big"
hdfs put "$W/tree" /data


# the standby one stands in front
reference=$(build "hdfs://$HDFS_NN2,$HDFS_NN/data" "$W/store/x")
[ -n "$reference" ] || fail "the standby NameNode is not passed over"
"$GRANARY" build -q "hdfs://$HDFS_NN2/data" "$W/store/y" 2>"$W/refusal" &
alone=$!
wait_for 60 grep -q "trying again" "$W/refusal"
kill -INT $alone
wait $alone && fail "the standby NameNode alone serves"

# the active one dies with reads and writes under way, and the other takes over
hdfs pause datanode
background "$GRANARY" build --json "hdfs://$HDFS_NN,$HDFS_NN2/data" "$W/store2/x" >"$W/read" 2>"$W/read.err"
reader=$BACKGROUND_PID
background "$GRANARY" build --json "$W/tree" "hdfs://$HDFS_NN,$HDFS_NN2/images/x" >"$W/written" 2>"$W/written.err"
writer=$BACKGROUND_PID
wait_for 60 busy "$HDFS_DN"
hdfs kill namenode
hdfs resume datanode
hdfs activate nn2 || fail "no failover"
wait "$reader" || fail "the build from HDFS failed: $(cat "$W/read.err")"
[ "$(jq -r .digest "$W/read")" = "$reference" ] || fail "another digest after the failover"
wait "$writer" || fail "the build into HDFS failed: $(cat "$W/written.err")"
[ "$(jq -r .digest "$W/written")" = "$(build "$W/tree" "$W/store3/x")" ] || fail "another digest in HDFS after the failover"
"$GRANARY" verify --deep -q "hdfs://$HDFS_NN,$HDFS_NN2/images/x" >/dev/null || fail "what was built is not sound"
