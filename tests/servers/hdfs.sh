#!/bin/bash
# A small HDFS for tests: Hadoop's released jars by Maven, a NameNode and a DataNode (and HttpFS) as processes of their
# own on loopback, WebHDFS on, without the tarball or native libraries.
# Debian 12: apt-get install --no-install-recommends default-jre-headless maven curl python3
#
# usage: DIR=/tmp/x LIB=/var/y hdfs.sh prepare|start|start-httpfs|stop|env|status
#        DIR=... hdfs.sh put LOCALDIR HDFSDIR                  a tree with its times, over WebHDFS
#        DIR=... hdfs.sh kill|pause|resume|restart NAME        namenode or datanode; kill is SIGKILL, pause SIGSTOP
#        DIR=... hdfs.sh activate nn1|nn2                      with HA=1: that NameNode becomes the active one
#        DIR=... hdfs.sh java CLASS ARG...                     a tool of Hadoop's
#   prepare  fetches the jars into LIB (kept; 60 MB); exit 3 when Maven cannot
#   start    returns once both serve; ports are free ones
#   env      prints HDFS_NN, HDFS_DN (HOST:PORT of their web servers), HTTPFS; with HA=1 HDFS_NN2, the standby one
#   stop     ends the daemons that `start` of this DIR started, and removes DIR
# Also: HA=1 (two NameNodes, namenode and namenode2, nn1 active at first), VERSION=3.3.6, HEAP=256m (of each daemon),
# LISTLIMIT=100 (entries of one page of a listing)
set -u
: "${DIR:?DIR= must name a directory of the cluster\'s own}"
LIB=${LIB:-$DIR-lib}
VERSION=${VERSION:-3.3.6}
HEAP=${HEAP:-256m}
HA=${HA:-}
LISTLIMIT=${LISTLIMIT:-100}
IP=127.0.0.1
HADOOP=org.apache.hadoop
CONF=$DIR/conf
JAVA=(java "-Xmx$HEAP" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Djava.net.preferIPv4Stack=true
    "-Djdk.net.hosts.file=$CONF/hosts" --add-opens java.base/java.lang=ALL-UNNAMED "-Dhttpfs.home.dir=$DIR/httpfs" "-Dhttpfs.config.dir=$CONF"
    -cp "$CONF:$LIB/$VERSION/*")

die() {
    echo "hdfs.sh: $1" >&2
    [ -z "${2:-}" ] || tail -n 5 "$2" >&2
    exit 1
}

wait_for() { # wait_for SECONDS COMMAND...
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.1
    done
}

prepare() {
    local part
    for part in java mvn curl python3; do
        command -v $part >/dev/null ||
            die "$part is missing: apt-get install --no-install-recommends default-jre-headless maven curl python3"
    done
    [ ! -e "$LIB/$VERSION/.done" ] || return 0
    mkdir -p "$LIB/$VERSION"
    {
        echo '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        echo '<groupId>granary</groupId><artifactId>hdfs</artifactId><version>1</version><dependencies>'
        for part in hadoop-common hadoop-hdfs hadoop-hdfs-client hadoop-hdfs-httpfs; do
            echo "<dependency><groupId>$HADOOP</groupId><artifactId>$part</artifactId><version>$VERSION</version></dependency>"
        done
        echo '</dependencies></project>'
    } >"$LIB/pom.xml"
    mvn -B -q -f "$LIB/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
        -DincludeScope=runtime "-DoutputDirectory=$LIB/$VERSION" >"$LIB/mvn.out" 2>&1 || {
        tail -n 3 "$LIB/mvn.out" >&2
        exit 3
    }
    rm -f "$LIB/$VERSION"/slf4j-log4j12-*.jar "$LIB/$VERSION"/log4j-1.2.*.jar # reload4j does their work
    touch "$LIB/$VERSION/.done"
}

free_port() {
    local port
    for _ in $(seq 100); do
        port=$((20000 + (RANDOM * 32768 + RANDOM) % 12000)) # below the ephemeral ports
        (exec 3<>"/dev/tcp/$IP/$port") 2>/dev/null || {
            echo "$port"
            return
        }
    done
    die "found no free port"
}

# What HA adds: a name for the pair, the journal in a directory both see, nobody to fence.
configure_pair() {
    property dfs.nameservices granary
    property dfs.ha.namenodes.granary nn1,nn2
    property dfs.namenode.rpc-address.granary.nn1 "$IP:$RPC"
    property dfs.namenode.rpc-address.granary.nn2 "$IP:$RPC2"
    property dfs.namenode.http-address.granary.nn1 "$IP:$HTTP"
    property dfs.namenode.http-address.granary.nn2 "$IP:$HTTP2"
    property dfs.namenode.name.dir.granary.nn1 "$DIR/name"
    property dfs.namenode.name.dir.granary.nn2 "$DIR/name2"
    property dfs.namenode.shared.edits.dir "file://$DIR/edits"
    property dfs.client.failover.proxy.provider.granary $HADOOP.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider
    property dfs.ha.fencing.methods 'shell(/bin/true)'
    property dfs.ha.tail-edits.period 1
}

property() { echo "<property><name>$1</name><value>$2</value></property>"; }

configure() {
    local user name
    user=$(id -un)
    mkdir -p "$CONF"/webapps/{hdfs,datanode}/WEB-INF "$DIR"/httpfs/{log,temp} || exit 1
    for name in HTTP HTTP2 RPC RPC2 DNHTTP DNDATA DNIPC HTTPFS; do echo "$name=$(free_port)"; done >"$DIR/ports"
    . "$DIR/ports"
    echo "$IP localhost $(hostname)" >"$CONF/hosts" # the daemons look their host up, which need not be in /etc/hosts
    # the jars lack the web consoles; the daemons want the folders
    echo '<web-app/>' | tee "$CONF"/webapps/{hdfs,datanode}/WEB-INF/web.xml >/dev/null
    {
        echo "<configuration>"
        property fs.defaultFS "hdfs://$([ -n "$HA" ] && echo granary || echo "$IP:$RPC")"
        property hadoop.tmp.dir "$DIR/tmp"
        property "hadoop.proxyuser.$user.hosts" '*' # HttpFS acts for its callers
        property "hadoop.proxyuser.$user.groups" '*'
        echo "</configuration>"
    } >"$CONF/core-site.xml"
    {
        echo "<configuration>"
        if [ -n "$HA" ]; then
            configure_pair
        else
            property dfs.namenode.name.dir "$DIR/name"
            property dfs.namenode.rpc-address "$IP:$RPC"
            property dfs.namenode.http-address "$IP:$HTTP"
        fi
        property dfs.datanode.data.dir "$DIR/data"
        property dfs.replication 1
        property dfs.datanode.hostname $IP # redirects name the DataNode by this
        property dfs.namenode.datanode.registration.ip-hostname-check false
        property dfs.datanode.address "$IP:$DNDATA"
        property dfs.datanode.http.address "$IP:$DNHTTP"
        property dfs.datanode.ipc.address "$IP:$DNIPC"
        property dfs.ls.limit "$LISTLIMIT"
        property dfs.namenode.delegation.token.always-use true # tokens without Kerberos
        property dfs.namenode.safemode.extension 0
        property dfs.namenode.safemode.min.datanodes 1
        property dfs.datanode.du.reserved 0
        property dfs.client.block.write.locateFollowingBlock.initial.delay.ms 5 # closing a file else takes 400 ms
        property dfs.client.block.write.locateFollowingBlock.retries 13 # each after twice the delay: 40 s in all
        property dfs.heartbeat.interval 1
        property dfs.namenode.heartbeat.recheck-interval 1000
        echo "</configuration>"
    } >"$CONF/hdfs-site.xml"
    {
        echo "<configuration>"
        property httpfs.http.hostname $IP
        property httpfs.http.port "$HTTPFS"
        echo "</configuration>"
    } >"$CONF/httpfs-site.xml"
    printf '%s\n' log4j.rootLogger=INFO,o log4j.appender.o=org.apache.log4j.ConsoleAppender log4j.appender.o.target=System.err \
        log4j.appender.o.layout=org.apache.log4j.PatternLayout 'log4j.appender.o.layout.ConversionPattern=%d %p %c{1}: %m%n' |
        tee "$CONF/httpfs-log4j.properties" >"$CONF/log4j.properties"
}

# The process of a daemon of this DIR: its command line names our configuration, so that a reused pid is not taken.
pid_of() {
    local pid
    pid=$(cat "$DIR/$1.pid" 2>/dev/null) || return 1
    grep -zqsF -- "$CONF" "/proc/$pid/cmdline" && echo "$pid"
}

class_of() {
    case $1 in
    namenode*) echo $HADOOP.hdfs.server.namenode.NameNode ;;
    datanode) echo $HADOOP.hdfs.server.datanode.DataNode ;;
    httpfs) echo $HADOOP.fs.http.server.HttpFSServerWebServer ;;
    *) die "no daemon $1" ;;
    esac
}

# Which of a pair a NameNode is.
identity_of() {
    case $HA$1 in
    1namenode) echo "-Ddfs.ha.namenode.id=nn1" ;;
    1namenode2) echo "-Ddfs.ha.namenode.id=nn2" ;;
    esac
}

spawn() {
    # shellcheck disable=SC2046
    setsid "${JAVA[@]}" "$(class_of "$1")" $(identity_of "$1") >>"$DIR/$1.log" 2>&1 </dev/null &
    echo $! >"$DIR/$1.pid"
}

signal() { # signal NAME SIGNAL: and wait for its end, if it is to end
    local pid
    pid=$(pid_of "$1") || return 0
    kill "-$2" "$pid"
    case $2 in STOP | CONT) return 0 ;; esac
    wait_for 10 bash -c "! kill -0 $pid" && return 0
    kill -KILL "$pid"
    wait_for 60 bash -c "! kill -0 $pid" # the next start finds ports and directories free
}

web() { curl -sf --noproxy '*' --max-time 60 "http://$IP:$1"; }
state() { grep -q "\"$1\" : \"\?$2" <<<"$(web "$HTTP/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState")"; }
serves() {
    case $1 in
    namenode) web "$HTTP/webhdfs/v1/?op=GETFILESTATUS" ;;
    namenode2) web "$HTTP2/jmx?qry=none" ;;
    datanode) state NumLiveDataNodes 1 && state FSState Operational && web "$DNHTTP/jmx?qry=none" ;;
    httpfs) web "$HTTPFS/webhdfs/v1/?op=GETFILESTATUS&user.name=$(id -un)" ;;
    esac
}
settled() { serves "$1" || ! kill -0 "$(cat "$DIR/$1.pid")"; } # its command line may still be that of this script
up() {
    wait_for 300 settled "$1" && kill -0 "$(cat "$DIR/$1.pid")" || die "the $1 does not come up" "$DIR/$1.log"
}

start() {
    [ -z "$(ls -A "$DIR" 2>/dev/null)" ] || die "$DIR is in use: stop it first"
    prepare
    configure
    # shellcheck disable=SC2046
    "${JAVA[@]}" "$(class_of namenode)" $(identity_of namenode) -format -nonInteractive -clusterid granary >"$DIR/format.log" 2>&1 ||
        die "the NameNode's directory cannot be made" "$DIR/format.log"
    spawn namenode
    [ -z "$HA" ] || start_standby
    spawn datanode
    [ -z "$HA" ] || activate nn1
    up namenode
    up datanode
}

start_standby() {
    cp -r "$DIR/name" "$DIR/name2" # as -bootstrapStandby does
    rm -f "$DIR/name2/in_use.lock"
    spawn namenode2
    up namenode2
}

activate() {
    wait_for 300 web "$HTTP2/jmx?qry=none" || die "no NameNode to become active" "$DIR/namenode2.log"
    "${JAVA[@]}" $HADOOP.hdfs.tools.DFSHAAdmin -transitionToActive --forceactive "$1" >"$DIR/activate.log" 2>&1 </dev/null ||
        die "$1 does not become active" "$DIR/activate.log"
}

stop() {
    local name
    [ -e "$CONF" ] || return 0
    for name in httpfs datanode namenode namenode2; do signal $name KILL; done
    rm -rf "$DIR"
}

[ ! -e "$DIR/ports" ] || . "$DIR/ports"
case ${1:-} in
prepare) prepare ;;
start) start ;;
start-httpfs)
    spawn httpfs
    up httpfs
    ;;
stop) stop ;;
env) echo "HDFS_NN=$IP:$HTTP HDFS_NN2=$IP:$HTTP2 HDFS_DN=$IP:$DNHTTP HTTPFS=$IP:$HTTPFS" ;;
status)
    for name in namenode namenode2 datanode httpfs; do
        if pid=$(pid_of $name); then echo "$name: pid $pid"; else echo "$name: not running"; fi
    done
    ;;
put) python3 "$(dirname "$0")/hdfsput.py" "$IP:$HTTP" "${2:?}" "${3:?}" ;;
kill) signal "${2:?}" KILL ;;
pause) signal "${2:?}" STOP ;;
resume) signal "${2:?}" CONT ;;
restart)
    signal "${2:?}" KILL
    spawn "$2"
    up "$2"
    pid_of datanode >/dev/null && up datanode
    ;;
activate) activate "${2:?}" ;;
java)
    shift
    "${JAVA[@]}" "$@"
    ;;
*)
    sed -n '2,18p' "$0"
    exit 2
    ;;
esac
