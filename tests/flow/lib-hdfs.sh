# shellcheck shell=bash
# For tests of HDFS: lib.sh, and a NameNode and a DataNode of Hadoop's that run until the test ends (with HA set, two
# NameNodes); hdfs VERB drives them. Skips where they cannot be started.
. "$GRANARY_SOURCE/tests/lib.sh"

command -v java >/dev/null && command -v mvn >/dev/null ||
    skip "no Java or Maven here: HDFS is not tested (apt-get install default-jre-headless maven)"
export DIR=$W/hdfs LIB=$GRANARY_BUILD/hadoop
hdfs() { bash "$GRANARY_SOURCE/tests/servers/hdfs.sh" "$@"; }
extra_cleanup() { hdfs stop; }
if hdfs prepare; then :; elif [ $? = 3 ]; then skip "Maven cannot fetch Hadoop's jars here: HDFS is not tested"; else fail "no jars"; fi
unset http_proxy HADOOP_TOKEN_FILE_LOCATION HADOOP_USER_NAME
hdfs start || fail "HDFS does not start"
eval "$(hdfs env)"

# put_tree: a tree of small files, one large one and odd names, which is /data in HDFS too
put_tree() {
    mkdir -p "$W/tree/many" "$W/tree/a/b" "$W/tree/sp ace%+&?#;=" "$W/tree/ünï/漢字" "$W/tree/empty"
    for i in $(seq 250); do head -c $((RANDOM % 9000)) /dev/urandom >"$W/tree/many/$i"; done
    head -c 40000000 /dev/urandom >"$W/tree/a/b/big"
    echo x >"$W/tree/sp ace%+&?#;=/é %41+"
    echo y >"$W/tree/ünï/漢字/z"
    : >"$W/tree/a/nothing"
    hdfs put "$W/tree" /data
}

# web METHOD PATH QUERY: of the NameNode
web() { curl -sf --noproxy '*' -X "$1" "http://$HDFS_NN/webhdfs/v1$2?user.name=$(id -un)&$3"; }

# build SOURCE IMAGE ARG...: its digest
build() { "$GRANARY" build -q --json "$@" | jq -r .digest; }
MAP=(--map-user alice=1234 --map-group analysts=4321 --map-group supergroup=0)

# busy NAME: a connection to a daemon's web server stands
busy() { [ -n "$(ss -Htn state established "dst $1")" ]; }
