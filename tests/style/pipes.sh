#!/bin/bash
# No command that stops reading before its input ends stands behind a pipe: the one before it may be killed by SIGPIPE,
# which fails the script under pipefail, now and then only. `sed -n 1,5p` reads to the end as `head` does not, and
# `grep WORDS >"$W/null"` as `grep -q` does not (nor does grep when its output is /dev/null). The status of a process
# substitution is nobody's.
set -euo pipefail
. "$GRANARY_SOURCE/tests/style/lib.sh"

check_pipes() {
    local files
    mapfile -t files < <(project_scripts | grep -v '/pipes.sh$')
    LC_ALL=C awk '
        {
            line = $0
            sub(/^ *#.*/, "", line)
            sub(/<\(.*/, "", line)
            gsub(/END *\{[^}]*\}/, "", line)
            if (line ~ /[^|]\| *(head |grep +(-[A-Za-z]+ +)*-[A-Za-z]*[qm]|grep[^|]*>\/dev\/null|awk [^|]*[^A-Za-z_]exit[^A-Za-z_]|sed +[^|]*[0-9\/{; ]q[; }\047"])/) {
                print FILENAME ":" FNR ": stops reading before its input ends: " $0
                bad = 1
            }
        }
        END { exit bad }' "${files[@]}"
}

bash='#!/bin/bash
'
can_fail check_pipes a.sh "${bash}sort a | head -n 1" a.sh:2
can_fail check_pipes a.sh "${bash}sort a | grep -F -xq b" a.sh:2
can_fail check_pipes a.sh "${bash}sort a | grep b >/dev/null" a.sh:2
can_fail check_pipes a.sh "${bash}sort a | awk '/b/ { print; exit }'" a.sh:2
can_fail check_pipes a.sh "${bash}sort a | sed -n '/b/{p;q}'" a.sh:2
check_pipes
