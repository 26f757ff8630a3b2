# shellcheck shell=bash
# Sourced by the tests of shared cache proxies: images, nginx as their store and as proxies
# (deploy/nginx/granary-l2.conf as it is shipped), servers of all images with a cache each. Before serve, the arrays
# `images` and `proxies` have the arguments of a server.

. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"
for tool in nginx nbdcopy jq curl; do command -v $tool >/dev/null || skip "no $tool here (apt-get install nginx-light libnbd-bin jq curl)"; done
unset http_proxy https_proxy

# make_images N: i1 ... iN in $W/store, their bytes in $W/i1.raw ...; OBJECT_BYTES: of their packs and index nodes
make_images() {
    local i
    IMAGES=$1
    for i in $(seq "$1"); do "$GRANARY_BUILD/tests/fake/fake_image" "$W/store" "i$i" "$i" >"$W/i$i.raw"; done
    export OBJECT_BYTES
    OBJECT_BYTES=$(find "$W/store/packs" "$W/store/indexes" -type f -printf '%s\n' | awk '{ n += $1 } END { print n }')
}

# nginx_config NAME: what nginx needs to run in a corner of its own; the server itself comes from standard input
nginx_config() {
    {
        echo "user root; worker_processes 1; pid $W/$1.pid; error_log $W/$1.error; events { worker_connections 300; }"
        echo "http { client_body_temp_path $W/$1.t1; proxy_temp_path $W/$1.t2; fastcgi_temp_path $W/$1.t3;"
        echo "uwsgi_temp_path $W/$1.t4; scgi_temp_path $W/$1.t5;"
        cat
        echo "}"
    } >"$W/$1.conf"
}

# store_config LISTEN: nginx `store`, with the store under /lake/, each answer as `URI BYTES` in $W/store.bytes
store_config() {
    nginx_config store <<END
log_format bytes '\$uri \$body_bytes_sent'; access_log $W/store.bytes bytes;
server { listen $1; location /lake/ { alias $W/store/; } }
END
}

# serve_store PROXY...: the store by nginx at port $P, and a free port in a variable of each name
serve_store() {
    local name
    for name in P "$@"; do
        free_port
        declare -g "$name=$FREE_PORT"
    done
    store_config "127.0.0.1:$P"
    background nginx -c "$W/store.conf" -g 'daemon off;'
    wait_for 60 answers "$P"
}

# proxy_config NAME STORE LISTEN: nginx NAME, a proxy in front of STORE (HOST:PORT) that caches in $W/kept-NAME: the
# configuration as it is shipped, with the edits that it asks for
proxy_config() {
    sed -e "s|/var/cache/nginx/granary|$W/kept-$1|; s|BUCKET.s3.eu-central-1.amazonaws.com:443|$2|" \
        -e "s|https://granary_store|http://granary_store|; s|BUCKET.s3.eu-central-1.amazonaws.com|${2%:*}|" \
        -e "s|listen 8080|listen $3|; s|max_size=400g|max_size=1g|" \
        "$GRANARY_SOURCE/deploy/nginx/granary-l2.conf" | nginx_config "$1"
    ! grep -q BUCKET "$W/$1.conf" || fail "granary-l2.conf has a BUCKET that the test does not know"
}

# kill_nginx PID: at once, with its workers
kill_nginx() {
    local workers
    mapfile -t workers < <(pgrep -P "$1")
    kill -9 "$1" "${workers[@]}"
}

# sent_by_store: bytes of packs and index nodes that left the store
sent_by_store() { awk '$1 ~ /\/(packs|indexes)\// { n += $2 } END { print n + 0 }' "$W/store.bytes"; }

# sent_once SERVER...: of all images, the store has sent each byte once. A node that was too slow for a busy machine was
# passed over, which costs a little more.
sent_once() {
    local server passed=0 sent
    for server in "$@"; do passed=$((passed + $(count "$server" l2_failures_total) + $(count "$server" l2_not_here_total))); done
    sent=$(sent_by_store)
    echo "the store sent $sent of $OBJECT_BYTES bytes; nodes were passed over $passed times"
    [ "$sent" = "$OBJECT_BYTES" ] || { [ $passed != 0 ] && [ "$sent" -le $((OBJECT_BYTES * 11 / 10)) ]; } || fail "the store sent more than everything once"
}

# start_nodes N: as many nodes that are each other's cache, n1 ... nN; the ports P1 ... PN are free
start_node() {
    local port=P$1
    serve "n$1" "cache=$W/cache$1:64M" "peer-listen=127.0.0.1:${!port}" "peer-key=$W/key" peer-keep=none hedge=0 timeout=60s
}
start_nodes() {
    local n port
    images=()
    for n in $(seq "$IMAGES"); do images+=("image=http://127.0.0.1:$P/lake/i$n"); done
    for n in $(seq "$1"); do port=P$n && echo "http://127.0.0.1:${!port}/lake"; done >"$W/members"
    proxies=("l2=$W/members")
    openssl rand -hex 32 >"$W/key"
    for n in $(seq "$1"); do start_node "$n"; done
}

# own_names: "$W/with-names" COMMAND... looks up names in a file of the test's own and nowhere else; say NAME N...: the
# addresses of NAME are 127.0.0.N, nobody's without an N. The file is written in place, since it is mounted.
own_names() {
    unshare -m true 2>"$W/null" || skip "no mount namespaces here: the name service is not tested"
    echo "hosts: files" >"$W/nsswitch"
    echo "multi on" >"$W/host.conf"
    : >"$W/hosts"
    touch /etc/host.conf
    cat >"$W/with-names" <<END
#!/bin/sh
exec unshare -m --propagation private sh -c 'mount --bind $W/hosts /etc/hosts && mount --bind $W/nsswitch /etc/nsswitch.conf &&
    mount --bind $W/host.conf /etc/host.conf && exec "\$@"' with-names "\$@"
END
    chmod +x "$W/with-names"
}
say() {
    local name=$1 n
    shift
    { echo "127.0.0.1 localhost" && for n in "$@"; do echo "127.0.0.$n $name"; done; } >"$W/hosts"
}
# addresses SERVER: the URLs that it asks; addresses_are SERVER N...: they are those of 127.0.0.N, port $PORT
addresses() { of_proxies "$1" 'map(.url) | sort | join(" ")'; }
addresses_are() {
    local server=$1 wanted="" n
    shift
    for n in "$@"; do wanted="$wanted${wanted:+ }http://127.0.0.$n:$PORT/lake"; done
    [ "$(addresses "$server")" = "$wanted" ]
}

# serve NAME ARG...: a server of all images, on the socket $W/NAME.sock
serve() {
    local name=$1
    shift
    # shellcheck disable=SC2154
    serve_unix "$W/$name.sock" "${images[@]}" "${proxies[@]}" control="$W/$name.control" "$@"
}
# read_image SERVER IMAGE: what the server gives of it is its bytes. Readers of one server may run beside each other.
read_image() { nbdcopy "nbd+unix:///$2?socket=$W/$1.sock" "$W/$1.copy.$BASHPID" && cmp "$W/$1.copy.$BASHPID" "$W/$2.raw"; }
read_all() {
    local i
    for i in $(seq "$IMAGES"); do read_image "$1" "i$i" || fail "server $1 does not give the bytes of image i$i"; done
}
# read_at_once SERVER...: read everything by each of them, all at the same moment
read_at_once() {
    local server reader readers=()
    for server in "$@"; do
        read_all "$server" &
        readers+=($!)
    done
    for reader in "${readers[@]}"; do wait "$reader" || fail "a reader saw an error or a wrong byte"; done
}
# read_until_kept SERVER...: read everything by each of them, until a pass takes nothing from the store: the nodes have it
read_until_kept() {
    local server sent pass
    for pass in $(seq 10); do
        sent=$(sent_by_store)
        for server in "$@"; do read_all "$server"; done
        echo "pass $pass took $(($(sent_by_store) - sent)) bytes from the store"
        [ "$(sent_by_store)" != "$sent" ] || return 0
    done
    fail "the nodes still take bytes from the store"
}
# A client that reads all of SERVER again and again: start_reader SERVER; goes_on SERVER waits for 20 requests more to
# proxies; end_reader SERVER... ends it, and no server has met an error
read_on() { while [ ! -e "$W/enough" ]; do read_all "$1"; done; }
start_reader() { background read_on "$1" && READER_PID=$BACKGROUND_PID; }
requests_above() { [ "$(count "$1" l2_requests_total)" -gt "$2" ]; }
goes_on() { wait_for 120 requests_above "$1" $(($(count "$1" l2_requests_total) + 20)); }
end_reader() {
    local server
    kill -0 "$READER_PID" 2>/dev/null || fail "the reader gave up"
    touch "$W/enough"
    wait "$READER_PID" || fail "a client saw an error or a wrong byte"
    for server in "$@"; do
        [ "$(count "$server" fetch_errors_total)" = 0 ] || fail "$(count "$server" fetch_errors_total) fetches of $server failed"
    done
}

# status_of, of_proxies, list_of SERVER FILTER: from its status, from what that says of the proxies, and of their first list
status_of() { curl -sS --fail --unix-socket "$W/$1.control" http://granary/status | jq -r "$2"; }
of_proxies() { status_of "$1" ".l2 | $2"; }
list_of() { status_of "$1" ".l2_lists[0] | $2"; }
says_its_status() { status_of "$1" . >"$W/null" 2>&1; }
# list_says SERVER TEXT: what is wrong with the list
list_says() { [[ "$(list_of "$1" '.error // ""')" = *"$2"* ]]; }
count() { counter_of "$W/$1.control" "$2"; }
state_is() { [ "$(of_proxies "$1" ".[$2].state")" = "$3" ]; }
# states_are SERVER STATES: those of all its proxies, sorted
states_are() { [ "$(of_proxies "$1" 'map(.state) | sort | join(" ")')" = "$2" ]; }
