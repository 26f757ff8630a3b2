# shellcheck shell=bash disable=SC2034 # the scripts that source this use what it sets
# Sourced by epoch.sh and accelerators.sh: the data, and how each contender is started over the data of $SET (files or
# extra) with a cache of $BUDGET bytes, such that $ROOT can be read; stop_contender takes any of them down.
#
# A contender is a function start_NAME; `prepare_NAME`, where there is one, makes what it reads, before any clock runs;
# `lacks_NAME` says what this machine lacks for it, or nothing. granary:KEY=VALUE,... has these options of its mount.

S3=http://10.77.0.2:9000
HTTP=http://10.77.0.2:8080
CONNECTIONS=64 THREADS=4 # of nbdfuse and nbdkit: nbdfuse takes the answers of a connection in turn
MARK=GRANARY_BENCH_CONTENDER=$W # of this run: another one may be at work
CONTENDERS=(local nbdkit-file granary rclone s3backer nbdkit-curl-cow nbdkit-curl-cache s3fs)
DAEMONS=()
ROOT=
READER=$GRANARY_BUILD/bench/epoch-reader
declare -A TREE IMAGE BYTES # of each set

# make_set SET DIR: the image of DIR, in a store and as a file, and its list
make_set() {
    TREE[$1]=$2
    IMAGE[$1]=$W/image.$1
    "$GRANARY" build "$2" "file://$W/store/$1" ${CHUNK:+"--chunk-size=$CHUNK"} --quiet >&2
    "$GRANARY" export "file://$W/store/$1" "$W/sparse" >&2
    cp --sparse=never "$W/sparse" "${IMAGE[$1]}" # a hole would be read from no disk
    rm "$W/sparse"
    "$READER" make "$2" >"$W/list.$1"
    BYTES[$1]=$(awk '{ n += $2 } END { printf "%.0f", n }' "$W/list.$1")
}

# upload: all sets, and their images, to S3, where a read finds them in memory
upload() {
    local set
    note "uploading from the server's side, and filling the front server's memory"
    for set in "${!TREE[@]}"; do in_server "$SOURCE/tests/servers/s3put.py" tree data "$set" "${TREE[$set]}"; done
    in_server "$SOURCE/tests/servers/s3put.py" tree data store "$W/store"
    {
        for set in "${!TREE[@]}"; do (cd "${TREE[$set]}" && find . -type f -printf "$set/%P\n"); done
        (cd "$W/store" && find . -type f -printf "store/%P\n")
    } >"$W/objects"
    curl_each in_server 8 "$W/prime" "$W/objects"
    rm -r "$W/prime"
}

RUN_IN_CLIENT=("${PREFIX[@]}" nsenter "--net=/run/netns/$LINK-c")

# daemon COMMAND...: in the client's namespace, found by its environment when its CPU and memory are counted
daemon() {
    env "$MARK" "${RUN_IN_CLIENT[@]}" "$@" >>"$W/log" 2>&1 9>&- &
    DAEMONS+=($!)
}

# The processes of the contender, one a line: those with the mark in their environment.
contender_pids() {
    { grep -lzsxF -- "$MARK" /proc/[0-9]*/environ || true; } | cut -d / -f 3
}

# Clock ticks they have used, and those of their children that have ended.
contender_ticks() {
    local pid ticks=0 stat
    for pid in $(contender_pids); do
        stat=$(cat "/proc/$pid/stat" 2>/dev/null) || continue
        # shellcheck disable=SC2086
        set -- ${stat##*) }
        ticks=$((ticks + ${12} + ${13} + ${14} + ${15}))
    done
    echo $ticks
}

# Their memory in KiB, what they share divided among them.
contender_pss() {
    local pid files=()
    for pid in $(contender_pids); do files+=("/proc/$pid/smaps_rollup"); done
    { [ ${#files[@]} = 0 ] || cat "${files[@]}" 2>/dev/null || true; } | awk '/^Pss:/ { n += $2 } END { print n + 0 }'
}

# The image file $1, mounted.
mount_image_file() {
    mount_image "$1"
    ROOT=$W/mnt
}

# The server on $W/sock mounted by nbdfuse.
mount_nbd() {
    wait_for 20 test -S "$W/sock"
    : >"$W/front/image"
    daemon nbdfuse -r -C $CONNECTIONS "$W/front/image" --unix "$W/sock"
    wait_for 20 test -s "$W/front/image"
    mount_image_file "$W/front/image"
}

# Bytes that the block device below the mount has read since it was made; what the page cache has asks for none.
device_bytes() {
    local device
    device=$(findmnt -n -o SOURCE "$W/mnt" || true)
    { cat "/sys/block/${device#/dev/}/stat" 2>/dev/null || true; } | awk '{ n = $3 * 512 } END { printf "%.0f", n }'
}

# Asks the kernel and not the mount, whose server may be dead.
is_mounted() { findmnt -n -M "$1" >/dev/null; }

# umount_soon DIR: by force where nobody answers any more
umount_soon() {
    local end=$((SECONDS + 20))
    while is_mounted "$1"; do
        umount "$1" 2>/dev/null && continue
        [ $SECONDS -lt $end ] || umount -f "$1" 2>/dev/null || umount -l "$1" || return 0
        sleep 0.2
    done
}

# end_soon PID...: asked first, and killed after 20 seconds
end_soon() {
    local pid
    for pid in "$@"; do
        kill "$pid" 2>/dev/null && { timeout 20 tail --pid="$pid" -f /dev/null || kill -9 "$pid"; }
    done
    return 0
}

# Whatever state it is in: dead, hanging, half started.
stop_contender() {
    set +e
    ! is_mounted "$W/mnt" || env "$MARK" timeout 60 "$GRANARY" umount "$W/mnt" 2>/dev/null || umount_soon "$W/mnt"
    umount_soon "$W/front/image"
    umount_soon "$W/front"
    end_soon "${DAEMONS[@]}"
    # shellcheck disable=SC2046 # one word a process
    end_soon $(contender_pids) # those whose parent died
    DAEMONS=()
    ROOT=
    rm -rf "$W/sock" "$W/sock.control" "$W/front"
}

# The files of mount --direct are immutable.
remove_cache() {
    chattr -R -f -i "$W/cache" || true # there may be none, and tmpfs has no such attribute
    rm -rf "$W/cache"
}

# fresh: nothing in any cache
fresh() {
    remove_cache
    mkdir -p "$W/cache" "$W/mnt" "$W/front"
    drop_caches
}

start_local() { ROOT=${TREE[$SET]}; }

start_loop() { mount_image_file "${IMAGE[$SET]}"; }

start_nbdkit-file() {
    daemon nbdkit -f -r -t $THREADS -U "$W/sock" file "${IMAGE[$SET]}"
    mount_nbd
}

# mount_granary OPTION...: of `granary mount`
mount_granary() {
    env "$MARK" "${RUN_IN_CLIENT[@]}" "$GRANARY" mount --cache "$W/cache/granary:$BUDGET" "$@" "s3://data/store/$SET" "$W/mnt" >>"$W/log" 2>&1
    ROOT=$W/mnt
}

# start_granary [OPTION=VALUE...]: without the dashes
start_granary() { mount_granary --fuse "${@/#/--}"; }

# The other fronts
start_granary-nbd() { mount_granary --direct=no; }
start_granary-ublk() { mount_granary --ublk; }
start_granary-direct() { BUDGET=$((2 * BUDGET)) mount_granary --direct; } # room for the image in slots, and whole
# The first mount is by a server, which writes the image's file in the background; the next is of that file.
complete_granary-direct() {
    wait_for 600 "$GRANARY" warm -q "$W/mnt" --resident 2>>"$W/log"
    stop_contender
    start granary-direct
    [ "$("$GRANARY" status --json "$W/mnt" | jq '.direct | length')" = 1 ] || { note "granary-direct: the mount is not direct"; return 1; }
}
lacks_granary-nbd() { modprobe -q nbd || echo "the kernel has no nbd"; }
lacks_granary-ublk() { modprobe -q ublk_drv || echo "the kernel has no ublk"; }
lacks_granary-direct() { [[ $("$GRANARY" mount --help) = *" --direct"* ]] || echo "this granary has no mount --direct"; }

# Cache and listing are kept for a day; mtimes come from the listing, not from a HEAD a file.
start_rclone() {
    mkdir -p "$W/cache/rclone"
    daemon rclone --config /dev/null --s3-provider Ceph --s3-env-auth --s3-endpoint "$S3" mount ":s3:data/$SET" "$W/mnt" \
        --read-only --vfs-cache-mode full --cache-dir "$W/cache/rclone" --vfs-cache-max-age 24h \
        --vfs-cache-max-size "${BUDGET}B" --vfs-cache-poll-interval 2s --dir-cache-time 24h --attr-timeout 1h \
        --use-server-modtime --no-checksum --s3-no-head-object --s3-no-check-bucket --poll-interval 0
    wait_for 30 mountpoint -q "$W/mnt"
    ROOT=$W/mnt
}

start_s3fs() {
    mkdir -p "$W/cache/s3fs"
    (umask 077 && echo "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" >"$W/s3fs.password")
    daemon s3fs "data:/$SET" "$W/mnt" -f -o "ro,url=$S3,use_path_request_style,passwd_file=$W/s3fs.password,umask=022" \
        -o "use_cache=$W/cache/s3fs,max_stat_cache_size=1000000,stat_cache_expire=86400,multireq_max=100,parallel_count=16"
    wait_for 30 mountpoint -q "$W/mnt"
    ROOT=$W/mnt
}

# The image as one file of a web server, or cut in blocks of 1 MiB: only while a contender needs it, it lies in memory.
prepare_nbdkit-curl-cow() {
    [ ! -e "$SHM/www/$SET.image" ] || return 0
    rm -rf "$SHM"/www/*
    cp "${IMAGE[$SET]}" "$SHM/www/$SET.image"
}
prepare_nbdkit-curl-cache() { prepare_nbdkit-curl-cow; }
prepare_s3backer() {
    [ ! -e "$SHM/www/blocks-$SET" ] || return 0
    rm -rf "$SHM"/www/*
    mkdir "$SHM/www/blocks-$SET"
    (cd "$SHM/www/blocks-$SET" && split -b 1M -a 8 --hex-suffixes=0 "${IMAGE[$SET]}" '' && truncate -s %1M ./*)
}

# The filters' cache is a temporary file.
start_nbdkit-curl-cow() {
    daemon env "TMPDIR=$W/cache" nbdkit -f -r -t $THREADS -U "$W/sock" --filter=cow curl "$HTTP/$SET.image" \
        cow-on-read=true cow-block-size=256K
    mount_nbd
}
start_nbdkit-curl-cache() {
    daemon env "TMPDIR=$W/cache" nbdkit -f -r -t $THREADS -U "$W/sock" --filter=cache curl "$HTTP/$SET.image" \
        cache-on-read=true cache-min-block-size=256K
    mount_nbd
}

start_s3backer() {
    local blocks=$((($(stat -c %s "${IMAGE[$SET]}") + (1 << 20) - 1) >> 20))
    daemon s3backer -f --quiet --readOnly --force "--baseURL=$HTTP/" --blockSize=1M "--size=${blocks}M" \
        "--blockCacheFile=$W/cache/blocks" "--blockCacheSize=$((blocks + 64))" --blockCacheNoVerify \
        --md5CacheSize=0 --readAhead=0 --filename=image "blocks-$SET" "$W/front"
    wait_for 20 test -s "$W/front/image"
    mount_image_file "$W/front/image"
}

# start NAME[:KEY=VALUE,...]
start() {
    local parameters=()
    if [[ $1 = granary:* ]]; then
        IFS=, read -ra parameters <<<"${1#*:}"
        start_granary "${parameters[@]}"
    else
        "start_$1"
    fi
}

lacks_rclone() { command -v rclone >/dev/null || echo "rclone is not installed"; }
lacks_s3backer() { command -v s3backer >/dev/null || echo "s3backer is not installed"; }
lacks_s3fs() { command -v s3fs >/dev/null || echo "s3fs is not installed"; }

lacks() { ! declare -F "lacks_$1" >/dev/null || "lacks_$1"; }
prepare() { ! declare -F "prepare_$1" >/dev/null || "prepare_$1"; }
