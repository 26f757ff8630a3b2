#!/bin/bash
# Every option in the tables of the command line and of the plugin stands in the man pages, in --help and in the bash
# completion, and the man pages name no option that is not there. Every verb has a section; the commands in README.md
# and docs/ exist, and docs/reference/options.md has the options of a server. flow/docs-commands runs the commands in
# ```sh blocks; those in other blocks stand in tests/data/docs-not-run.txt.
set -euo pipefail
. "$GRANARY_SOURCE/tests/style/lib.sh"
granary=$GRANARY_BUILD/cli/granary
plugin=$GRANARY_BUILD/plugin/nbdkit-granary-plugin.so
man=docs/man/granary.1
plugin_man=docs/man/nbdkit-granary-plugin.1
completion=cli/completion/granary.bash
bad=0
object() { echo "$*"; bad=1; }

# words_of_man FILE: its text with roff's escapes undone, so that \-\-jobs reads --jobs
words_of_man() { sed 's/\\-/-/g; s/\\f[A-Z]//g; s/\\&//g; s/\\(aq/'"'"'/g' "$1"; }

# options_in: those in the text on stdin, a line each, sorted
options_in() { grep -oE -- '[A-Za-z0-9-]+' | grep -E '^--?[A-Za-z0-9]' | LC_ALL=C sort -u; }
# lacking LINES LINES: those of the first that are not among the second
lacking() { LC_ALL=C comm -23 <(sed '/^$/d' <<<"$1") <(echo "$2"); }

# "VERB --name VALUE" a line
options=$(mktemp)
trap 'rm -f "$options"' EXIT
"$granary" help --all >"$options"
[ "$(wc -l <"$options")" -ge 20 ] || object "granary help --all lists hardly anything"
verbs=$("$granary" help | sed -n 's/^  \([a-z]*\)  *[A-Z].*/\1/p')
[ "$(wc -w <<<"$verbs")" -ge 10 ] || object "granary help lists hardly any verbs: $verbs"

# "VERB COMMAND" a line, for verbs with commands
commands=$(for verb in $verbs; do
    "$granary" "$verb" --help | sed -n '/^commands/,/^$/s/^  \([a-z]*\)  *[A-Z].*/'"$verb"' \1/p'
done)
[ "$(wc -l <<<"$commands")" -ge 1 ] || object "granary cache --help lists no commands"

# section_of VERB: the part of the man page about it: from its .SS line to the next
section_of() { words_of_man $man | awk -v verb="$1" '/^\.S[SH]/ { on = index($0 " ", ".SS " verb " ") == 1 } on'; }

known=$(sed -n 's/^[a-z ]* \(-[^ ]*\).*/\1/p' "$options" | LC_ALL=C sort -u)
completed=$(options_in <"$completion")
while read -r verb; do
    section=$(section_of "$verb")
    [ -n "$section" ] || { object "$man: no section (.SS) for the verb $verb"; continue; }
    read -ra words <<<"$verb"
    help=$("$granary" "${words[@]}" --help | options_in)
    in_man=$(options_in <<<"$section" || true)
    of_verb=$(sed -n "s/^$verb \(-[^ ]*\).*/\1/p" "$options" | LC_ALL=C sort -u)
    grep -qw -- "$verb" "$completion" || object "$completion: verb $verb is missing"
    for option in $(lacking "$of_verb" "$in_man"); do object "$man: $verb: $option is missing"; done
    for option in $(lacking "$of_verb" "$help"); do object "granary $verb --help: $option is missing"; done
    for option in $(lacking "$(grep ^-- <<<"$of_verb")" "$completed"); do object "$completion: $option is missing"; done
    for option in $(lacking "$(grep ^-- <<<"$in_man")" "$known"); do
        case $option in --help | --version) continue;; esac
        object "$man: $verb: $option does not exist"
    done
done < <(tr ' ' '\n' <<<"$verbs"; printf '%s\n' "$commands")

# granary-csi refuses the options of `granary mount` that are the node's to set. These are a volume's to set; a new option
# belongs to one of the two, and the man page has what is refused.
of_volumes="bwlimit cache-compressed connections dead-timeout disk-timeout endpoint eviction fence fill follow fuse hedge
index-memory keep-versions memory
nbd-timeout noexec poll quota readahead slow-read store-connections timeout warm watermark"
refused=$(sed -n '/^static const char \*forbidden/,/^}/s/.*{"\([a-z0-9-]*\)", ".*/\1/p' csi/request.c)
decided=$(printf '%s\n' $of_volumes $refused | LC_ALL=C sort)
of_mount=$({ sed -n 's/^mount --\([^ ]*\).*/\1/p' "$options"; echo help; } | LC_ALL=C sort -u)
[ "$decided" = "$of_mount" ] ||
    object "an option of granary mount is neither in csi/request.c nor among of_volumes here: $(diff <(echo "$decided") <(echo "$of_mount"))"
in_man=$(words_of_man docs/man/granary-csi.8)
for option in $refused; do grep -qw -- "$option" <<<"$in_man" || object "docs/man/granary-csi.8: $option is missing"; done

# the plugin: `nbdkit PLUGIN --help` lists `name=VALUE` parameters
parameters=$(nbdkit "$plugin" --help | grep -oE '^[a-z0-9-]+=' | tr -d = | sort -u)
[ "$(wc -w <<<"$parameters")" -ge 2 ] || object "nbdkit granary --help lists hardly any parameters"
plugin_words=$(words_of_man $plugin_man)
for parameter in $parameters; do
    grep -qE -- "(^|[^a-z-])$parameter *=" <<<"$plugin_words" || object "$plugin_man: $parameter= is missing"
done
for parameter in $(words_of_man $plugin_man | grep -oE '^\.(B|BI|TP)[^=]* "?[a-z][a-z0-9-]*=' | grep -oE '[a-z][a-z0-9-]*=' | tr -d = | sort -u); do
    grep -qx -- "$parameter" <<<"$parameters" || object "$plugin_man: $parameter= does not exist"
done

# Variables that the program reads; not those that pass between its own processes, or belong to the system
page=$(words_of_man $man)
variables=$(project_files '*.c' '*.h' | grep -v '^\./tests/' | xargs grep -ohE '"(AWS|HADOOP|GRANARY|NOTIFY)_[A-Z0-9_]+"|"TMPDIR"' | tr -d '"' | sort -u)
[ "$(wc -w <<<"$variables")" -ge 20 ] || object "hardly any variables are read: $variables"
for variable in $variables; do
    case $variable in GRANARY_RESOLVED | GRANARY_SUPERVISOR | GRANARY_CHECK | GRANARY_TAKE_OVER | GRANARY_LOG | GRANARY_KEYS_FD) continue;; esac
    grep -qE "(^|[^A-Z_])$variable([^A-Z_]|$)" <<<"$page" || object "$man: $variable is missing"
done

# commands_of FILE: "VERB WORDS" for each `granary VERB ...` in its code: inline, or where a command begins on a line
commands_of() {
    sed -e ':join' -e '/\\$/{N;s/\\\n *//;t join' -e '}' "$1" |
        grep -oE '(^ *|`|\(|&& |exec |[0-9.a-z/-]/bin/|^[$#] )granary [a-z]+( [^`|)]*)?' | sed -E 's/^.*granary ([a-z]+)/\1/'
}

# README.md and the pages: every `granary VERB` there is a verb, every option an option of it
check_commands() {
    local file verb rest option bad=0 words
    while IFS= read -r file; do
        while read -r verb rest; do
            [[ $'\n'$verbs$'\n' = *$'\n'"$verb"$'\n'* ]] || { echo "$file: granary $verb: no such verb"; bad=1; continue; }
            read -ra words <<<"${rest%% # *}"
            for option in "${words[@]}"; do
                [[ $option =~ ^--[a-z][a-z0-9-]+ ]] || continue
                option=${BASH_REMATCH[0]}
                [ "$option" = --help ] || [ "${is_option[$verb $option]:-}" ] ||
                    { echo "$file: granary $verb $option: no such option"; bad=1; }
            done
        done < <(commands_of "$file")
    done < <(project_files '*.md' | grep -E '^\./(README\.md|docs/)' | grep -v /format-) # where bytes begin with "granary"
    return $bad
}
verbs+=$'\nhelp'
declare -A is_option
while read -r verb option; do is_option[$verb $option]=1; done < <(sed -nE 's/^([a-z]+) ([a-z]+ )?(-[^ ]+).*/\1 \3/p' "$options")
# shellcheck disable=SC2016
can_fail check_commands docs/a/b.md 'run `granary mont DIR`' 'granary mont: no such verb'
can_fail check_commands README.md $'    granary mount IMAGE DIR \\\n        --cahce /ssd' 'granary mount --cahce: no such option'
check_commands || bad=1

# Every command in a block of README.md or docs/ is run or listed: ```sh and ```console blocks are run, indented lines
# are commands that are not, and stand in the list; other blocks have no commands.
not_run=tests/data/docs-not-run.txt
unrun() {
    project_files '*.md' | grep -E '^\./(README\.md|docs/)' | grep -v /format- | sed 's,^\./,,' | LC_ALL=C xargs -r awk '
        FNR == 1 { fenced = run = code = 0; blank = 1 }
        /^```/ { fenced = !fenced; run = fenced && /^```(sh|console)$/; code = 0; next }
        !fenced && /^    +[^ ]/ && (blank || code) { code = 1; sub(/^ +/, ""); print FILENAME ": " $0; next }
        fenced && !run && /^([$#] )?(granary|nbdkit|nbdcopy|kubectl|helm|systemctl|apt|podman|docker|curl) / { print FILENAME ": " $0 }
        { blank = /^$/; if (!blank) code = 0 }'
}
check_unrun() {
    local line bad=0
    while IFS= read -r line; do
        grep -qxF -- "$line" "$list" || { echo "$line: it is neither in a \`\`\`sh block, nor in $not_run"; bad=1; }
    done < <(unrun)
    return $bad
}
list=$PWD/$not_run
# shellcheck disable=SC2016
can_fail check_unrun docs/a/b.md $'So:\n\n    kubectl get pods' 'neither in a'
can_fail check_unrun README.md $'So:\n\n```\ngranary gc STORE\n```' 'neither in a'
check_unrun || bad=1
there=$(unrun)
while IFS= read -r line; do
    case $line in
    docs/man/*) grep -qxF -- "${line#*: }" <<<"$(words_of_man "${line%%: *}")" || object "$not_run: $line: it is not there" ;;
    *) grep -qxF -- "$line" <<<"$there" || object "$not_run: $line: it is not there" ;;
    esac
done < <(grep -E '^[A-Za-z/.0-9-]+: ' "$not_run")

# docs/reference/options.md: a row for each option that serve and mount share, and for no other; the default is that of
# --help
rows() { sed -nE 's/^\| `(--[a-z0-9-]+)` \| ([^|]*) \|.*/\1 \2/p' docs/reference/options.md; }
shared=$(comm -12 <(sed -n 's/^serve \(--[^ ]*\).*/\1/p' "$options" | LC_ALL=C sort) <(sed -n 's/^mount \(--[^ ]*\).*/\1/p' "$options" | LC_ALL=C sort) |
    grep -vxE -- '--socket|--ublk|--fuse')
[ "$(wc -w <<<"$shared")" -ge 15 ] || object "serve and mount share hardly any options: $shared"
differ=$(diff <(printf '%s\n--threads\n' "$shared" | LC_ALL=C sort) <(rows | cut -d' ' -f1 | LC_ALL=C sort)) || object "docs/reference/options.md (>) has other options than --help (<): $differ"
while read -r option default; do
    help=$("$granary" serve --help | sed -nE "s/^ +(-t, )?$option .*\(default ([^ )]+)\)\$/\2/p")
    [[ $default = *"$help"* ]] || object "docs/reference/options.md: the default of $option is $help"
done < <(rows)
exit $bad
