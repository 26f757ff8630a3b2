#!/bin/bash
# The console's page: its scripts make no markup of text, and its files are small enough and name no other place. A
# browser refuses inline scripts and styles (the policy of server/console.c), so there are none. style/page-types has the
# types.
set -euo pipefail
. "$GRANARY_SOURCE/tests/style/lib.sh"

page_files() { project_files '*' | grep '^\./server/console/'; }

check_markup() {
    local files bad=0
    mapfile -t files < <(page_files)
    ! grep -nE 'innerHTML|outerHTML|insertAdjacentHTML|document\.write|[^a-zA-Z]eval\(|new Function|setTimeout\("' "${files[@]}" || bad=1
    ! grep -nE '<script>|<style|[ "](style|on[a-z]+)="' "${files[@]}" || bad=1
    ! grep -noE '(https?:)?//[a-z0-9-]+\.[a-z0-9.-]+' "${files[@]}" | grep -v '://www\.w3\.org$' || bad=1
    return $bad
}

check_size() {
    local files size
    mapfile -t files < <(page_files)
    size=$(cat "${files[@]}" | wc -c)
    [ "$size" -le 69632 ] || { echo "server/console has $size bytes; 68 KiB are for the whole page"; return 1; }
}

can_fail check_markup server/console/a.js 'row.innerHTML = name;' 'row.innerHTML'
can_fail check_markup server/console/a.html '<p style="color: red">' 'color: red'
can_fail check_markup server/console/a.css '@import "https://fonts.example.com/a.css";' fonts.example.com
can_fail check_size server/console/a.js "$(head -c 69633 /dev/zero | tr '\0' a)" '69634 bytes'
check_markup
check_size
