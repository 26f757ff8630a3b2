# shellcheck shell=bash
# Sourced by the tests of builds under faults: a tree, an S3 server that misbehaves as told (tests/servers/faulty-s3.py)
# and the digest the image must have.

. "${GRANARY_SOURCE:?run by ctest}/tests/lib.sh"

export AWS_ACCESS_KEY_ID=key AWS_SECRET_ACCESS_KEY=secret AWS_REGION=us-east-1
unset AWS_SESSION_TOKEN AWS_CA_BUNDLE

# Everything but what a client can only wait for.
export QUICK_KINDS='"500","503","garbage","reset","lost","cut","broken","short","long","slow","again"'

# make_tree DIR FILES: pages of small objects, and a few of several hundred KiB
make_tree() {
    python3 - "$1" "$2" <<'PYTHON'
import os, random, sys
top, files = sys.argv[1], int(sys.argv[2])
rng = random.Random(5)
for i in range(files):
    os.makedirs(f"{top}/dir-{i % 23}", exist_ok=True)
    with open(f"{top}/dir-{i % 23}/part-{i}", "wb") as file:
        file.write(rng.randbytes(rng.randrange(400000) if i % 50 == 0 else rng.randrange(3000)))
PYTHON
}

# make_large_files DIR FILES: 2.5 MB each
make_large_files() {
    python3 - "$1" "$2" <<'PYTHON'
import os, random, sys
rng = random.Random(9)
os.mkdir(sys.argv[1])
for i in range(int(sys.argv[2])):
    with open(f"{sys.argv[1]}/file-{i}", "wb") as file:
        file.write(rng.randbytes(2500000))
PYTHON
}

# serve_faulty DIR: bucket `data` is DIR; the other buckets are empty
serve_faulty() {
    background "$GRANARY_SOURCE/tests/servers/faulty-s3.py" "$W/port" "data=$1"
    wait_for 60 test -s "$W/port"
    AWS_ENDPOINT_URL=http://127.0.0.1:$(cat "$W/port")
    export AWS_ENDPOINT_URL
}

# faults PERCENT KINDS [SEED [MATCH]]: KINDS as JSON strings with commas between
faults() {
    curl -sSf -o "$W/null" "$AWS_ENDPOINT_URL/-/faults" \
        -d "{\"percent\": $1, \"kinds\": [$2], \"seed\": ${3:-1}, \"match\": \"${4:-}\"}"
}
no_faults() { faults 0 ''; }
count() { curl -sSf "$AWS_ENDPOINT_URL/-/counts" | jq ".[\"$1\"] // 0"; }

# build_clean SOURCE IMAGE: a build without faults, whose digest the others must have
build_clean() {
    "$GRANARY" build -q "$1" "$2" --json >"$W/json"
    digest=$(jq -r .digest "$W/json")
    [ "$(published "${2%/*}")" -ge 1 ] || fail "$2 was built, and counts as not published"
}

# build_right SOURCE IMAGE ARG...: a build that gives $digest
build_right() {
    "$GRANARY" build -q "$@" --json >"$W/json" 2>"$W/err" || { cat "$W/err"; fail "the build of $2 failed"; }
    [ "$(jq -r .digest "$W/json")" = "$digest" ] || { cat "$W/err"; fail "another digest: $(cat "$W/json")"; }
}

# build_fails PATTERN STORE SOURCE ARG...: a build that ends with such a sentence and publishes nothing
build_fails() {
    local pattern=$1 store=$2 source=$3 status=0
    shift 3
    "$GRANARY" build -q "$source" "$store/set" "$@" >"$W/out" 2>"$W/err" || status=$?
    [ $status = 1 ] || { cat "$W/err"; fail "$store: exit $status where it should fail"; }
    grep -q "$pattern" "$W/err" || { cat "$W/err"; fail "$store: another sentence than '$pattern'"; }
    no_faults
    nothing_published "$store"
}

# published STORE: how many tags lie in a directory or on the faulty server, whether or not it is a whole store yet
published() {
    case $1 in
        s3://*/*) curl -sSf "$AWS_ENDPOINT_URL/$(cut -d/ -f3 <<<"$1")?list-type=2&prefix=$(cut -d/ -f4- <<<"$1")/images/" | grep -o '<Key>' | wc -l ;;
        /* | file:///*) mkdir -p "${1#file://}/images" && find "${1#file://}/images" -type f | wc -l ;;
        *) echo "what kind of store is $1?" ;;
    esac
}
nothing_published() { [ "$(published "$1")" = 0 ] || fail "$1: something was published: $(published "$1")"; }

# build_and_kill SOURCE IMAGE SECONDS: killed so long after its start, if it is not over
build_and_kill() {
    "$GRANARY" build -q "$1" "$2" >"$W/out" 2>"$W/err" &
    local pid=$!
    sleep "$3"
    kill -KILL $pid 2>"$W/null" || true
    wait $pid 2>"$W/null" || true
}

# soak_round ROUND PERCENT KINDS [SECONDS]: while so many of the requests fail so, a build, killed after SECONDS and run
# again, is right and whole
soak_round() {
    local image=s3://round-$1/store/set
    faults "$2" "$3" "$1"
    [ -z "${4:-}" ] || build_and_kill s3://data "$image" "$4"
    build_right s3://data "$image"
    no_faults
    "$GRANARY" verify --deep -q "$image"
}

# kill_loop KILLS TREE STORE: that many builds killed at any moment of their lives, then one that is not
kill_loop() {
    local i=0 took packs tag
    took=$(date +%s%N)
    build_clean "$2" "$3-whole/set"
    took=$((($(date +%s%N) - took) / 1000000))
    mkdir -p "$3/packs"
    while [ $((i++)) -lt "$1" ]; do
        build_and_kill "$2" "$3/set" "$(awk -v ms="$took" -v r="$RANDOM" 'BEGIN { print ms * r / 32768 / 1000 }')"
        # what is published is whole, by the tag that names it for ever and, if it came to that, by the other
        for tag in "$3"/images/set/*; do
            [ ! -e "$tag" ] || "$GRANARY" verify --deep -q "$3/set:${tag##*/}" || fail "published, and damaged: ${tag##*/}"
        done
    done
    packs=$(find "$3/packs" -type f -name '????????????????????????????????????????????????????????????????' | wc -l)
    local before
    before=$(published "$3")
    build_right "$2" "$3/set"
    [ "$before" != 0 ] || [ "$(jq .packs_reused "$W/json")" -ge "$packs" ] ||
        fail "of $packs packs there were not all used: $(cat "$W/json")"
    "$GRANARY" verify --deep -q "$3/set"
}
