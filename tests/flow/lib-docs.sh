# shellcheck shell=bash
# Sourced by the tests that run the commands of the pages in docs/: what stands in a page, by section. $W/stand-ins is a
# script of sed that puts this test's directories in place of the page's.

# blocks PAGE LANGUAGE [SECTION]: what stands in its ```LANGUAGE blocks, about this test's directories
blocks() {
    awk -v begin="\`\`\`$2" -v section="${3-}" '
        /^```/ { fenced = !fenced; on = fenced && $0 == begin && (section == "" || here == section); next }
        !fenced && /^#+ / { here = $0; sub(/^#+ /, "", here) }
        on' "$1" |
        sed -E -f "$W/stand-ins"
}
# sections PAGE: "PAGE SECTION" for those with commands, in order
sections() {
    awk -v page="$1" '/^#+ / && !on { here = $0; sub(/^#+ /, "", here) }
        /^```(sh|console)$/ && !on && !(here in seen) { print page " " here; seen[here] } /^```/ { on = !on }' "$1"
}
