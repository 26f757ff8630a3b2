# shellcheck shell=bash
# Sourced by the style tests. A check is a function that looks at the tree in the current directory, prints what is
# wrong and fails; each test first shows that its check can fail, on a small bad tree.

# skip REASON: never in CI for something apt can install
skip() {
    echo "$*"
    [[ -z ${CI:-} || $* != *"apt-get install"* ]] || exit 1
    exit 77
}

# project_files PATTERN...: the paths (./a/b) of files whose names match, build trees left out, debhelper's too.
project_files() {
    local pattern expr=()
    for pattern in "$@"; do expr+=(-o -name "$pattern"); done
    find . \( -name .git -o -path './build*' -o -path './obj-*' \) -prune -o -type f \( "${expr[@]:1}" \) -print | LC_ALL=C sort
}

# project_scripts: the paths of the shell scripts, those to be sourced too
project_scripts() {
    project_files '*' | LC_ALL=C xargs -d '\n' awk 'FNR == 1 {
        if (/^#!.*sh$|^# shellcheck shell=/) print FILENAME; nextfile }'
}

# code_of FILE...: "FILE:LINE:CODE" for every line, without comments and the insides of string literals.
code_of() {
    LC_ALL=C awk '
        FNR == 1 { comment = 0 }
        {
            line = $0; out = ""
            while (line != "") {
                if (comment) {
                    if (!(i = index(line, "*/"))) break
                    line = substr(line, i + 2); comment = 0
                } else if (match(line, /\/\*|\/\/|"([^"\\]|\\.)*"|\047([^\047\\]|\\.)*\047/)) {
                    token = substr(line, RSTART, RLENGTH)
                    out = out substr(line, 1, RSTART - 1)
                    line = substr(line, RSTART + RLENGTH)
                    if (token == "//") break
                    if (token == "/*") comment = 1; else out = out "\"\""
                } else { out = out line; break }
            }
            print FILENAME ":" FNR ":" out
        }' "$@" </dev/null
}

# can_fail CHECK FILE CONTENT EXPECTED: CHECK fails, naming EXPECTED, on a tree holding just FILE with CONTENT.
can_fail() {
    local tree out status=0
    tree=$(mktemp -d)
    mkdir -p "$tree/$(dirname "$2")"
    printf '%s\n' "$3" >"$tree/$2"
    out=$(cd "$tree" && "$1" 2>&1) || status=1
    rm -rf "$tree"
    if [ $status = 0 ] || ! grep -qF -- "$4" <<<"$out"; then
        echo "the check itself is broken: $1 does not object to '$3' in $2 (it said: $out)"
        exit 1
    fi
}

cd "$GRANARY_SOURCE" || exit 1
