# shellcheck shell=bash
# Sourced by the tests in the guest whose store is on the host and falls silent, after lib-readers.sh.

# prepare_far: an image that is larger than the smallest cache, in a store that is served here. In the guest `host dead`
# has it answer nobody until `host alive`, `host asked` prints how many requests came meanwhile; FAR are words for
# run_readers.
prepare_far() {
    local i
    mkdir "$W/tree"
    for i in $(seq 12); do head -c 3000000 /dev/urandom >"$W/tree/$i"; done
    for i in $(seq 200); do seq "$i" 3000 >"$W/tree/text-$i"; done
    export tree=$W/tree
    prepare_readers
    cat >"$W/server.py" <<'PY'
import os, sys, time
import ranged
root, port, dead, asked = sys.argv[1:]
class Handler(ranged.Files):
    def ready(self):
        if os.path.exists(dead):
            with open(asked, "a") as f:
                f.write(self.path + "\n")
        while os.path.exists(dead):
            time.sleep(0.1)
        return True
ranged.serve(Handler, root, port)
PY
    export PYTHONPATH=$GRANARY_SOURCE/tests/servers PYTHONDONTWRITEBYTECODE=1
    background python3 "$W/server.py" "$W/store" "$W/port" "$W/dead" "$W/asked" 2>"$W/server.err"
    wait_for 60 test -s "$W/port"
    cat >"$W/hook" <<HOOK
#!/bin/bash
read -r what
case \$what in
    dead) rm -f $W/asked; touch $W/asked $W/dead;;
    alive) rm $W/dead;;
    asked) wc -l <$W/asked;;
esac
HOOK
    chmod +x "$W/hook"
    export FAR=(--hook "$W/hook" --env "port=$(cat "$W/port")")
}

# guest_far: a part of the guest script, after guest_readers
guest_far() {
    cat <<'GUEST'
# serve_far ARG...: the image in the store on the host, with a cache for a part of it
serve_far() {
    rm -rf /cache /serve.log
    granary serve http://10.0.2.2:$port/perl --socket /s.sock --threads 64 --cache /cache:16M --fill off --slow-read 0 "$@" >/serve.log 2>&1 &
    server=$!
    said /serve.log serving
}
# attach SECONDS: the time-out of a request
attach() {
    granary mount file:///store/perl /mnt/data --socket /s.sock --nbd-timeout $1s
    device=$(grep ' /mnt/data ' /proc/mounts | cut -d ' ' -f 1)
}
detach() {
    granary umount /mnt/data
    kill $server
    wait $server
}
GUEST
}
