#!/bin/bash
# ctest: lock=hdfs long
# HDFS as a source and as a store whose NameNode or DataNode is killed and started again in the middle of a build: the
# image is the same.
. "${GRANARY_SOURCE:?run by ctest}/tests/flow/lib-hdfs.sh"
put_tree
SOURCE=hdfs://$HDFS_NN/data
STORE=hdfs://$HDFS_NN/images
reference=$(build "$SOURCE" "$W/store/x:ref" "${MAP[@]}")
[[ $reference == sha256:* || ${#reference} = 64 ]] || fail "no digest: $reference"

# build_in_background ARG...: its digest goes to $W/built, $BUILD is its process
build_in_background() {
    rm -f "$W/built"
    background "$GRANARY" build --json "$@" >"$W/built" 2>"$W/build.err"
    BUILD=$BACKGROUND_PID
}
ends_right() { # ends_right DIGEST WHAT
    wait "$BUILD" || fail "$2: the build failed: $(cat "$W/build.err")"
    [ "$(jq -r .digest "$W/built")" = "$1" ] || fail "$2: another digest"
}

echo "--- the DataNode dies with reads under way"
hdfs pause datanode
build_in_background "$SOURCE" "$W/store1/x" "${MAP[@]}"
wait_for 60 busy "$HDFS_DN"
hdfs kill datanode
sleep 0.5
hdfs restart datanode
ends_right "$reference" "DataNode killed while it was read"

echo "--- the NameNode dies with reads under way, which go on without it"
hdfs pause datanode
build_in_background "$SOURCE" "$W/store2/x" "${MAP[@]}"
wait_for 60 busy "$HDFS_DN"
hdfs kill namenode
hdfs resume datanode
sleep 0.5
hdfs restart namenode
ends_right "$reference" "NameNode killed while its files were read"

echo "--- the NameNode dies while it is asked for the listing"
hdfs pause namenode
build_in_background "hdfs://127.0.0.1:1,$HDFS_NN/data" "$W/store3/x" "${MAP[@]}"
wait_for 60 busy "$HDFS_NN"
hdfs kill namenode
hdfs restart namenode
ends_right "$reference" "NameNode killed while it listed"

for victim in datanode namenode; do
    echo "--- the $victim dies with writes under way"
    hdfs pause datanode
    build_in_background "$W/tree" "$STORE-$victim/x" --compress none
    wait_for 60 busy "$HDFS_DN"
    hdfs kill $victim
    hdfs resume datanode
    sleep 0.5
    hdfs restart $victim
    ends_right "$(build "$W/tree" "$W/store4/x" --compress none)" "$victim killed while it was written to"
    "$GRANARY" verify --deep -q "$STORE-$victim/x" >/dev/null || fail "$victim killed: what was built is not sound"
done
