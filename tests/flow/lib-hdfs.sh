# shellcheck shell=bash
# For tests of HDFS: lib.sh, and a NameNode and a DataNode of Hadoop's that run until the test ends (with HA set, two
# NameNodes); hdfs VERB drives them. Skips where they are not to be had.
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
