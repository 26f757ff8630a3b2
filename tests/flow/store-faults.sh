#!/bin/bash
# A whole image is read from a cold cache while the line to its store fails in every way that passes: the bytes are
# right and no read fails. docs/internals/faults.md has the table that this prints.
. "$(dirname "$0")/lib-store-faults.sh"

make_store "$(seconds 16 40)"
serve_store
say_head
survives "none" '{"mode": "none"}'
outage=$(seconds 3 60)
survives "connections refused for $outage s" "{\"mode\": \"refuse\", \"after\": 3, \"for_s\": $outage}"
survives "silence for $outage s" "{\"mode\": \"silent\", \"after\": 3, \"for_s\": $outage}"
survives "10 KB/s a connection for $outage s" "{\"mode\": \"trickle\", \"rate\": 10000, \"after\": 3, \"for_s\": $outage}"
survives "answers 5 s late for $outage s" "{\"mode\": \"late\", \"delay_s\": 5, \"after\": 3, \"for_s\": $outage}"
ERRORS='"500", "503", "reset", "cut", "broken"'
survives "30 % errors: 500, 503, reset, cut off" "{\"mode\": \"errors\", \"percent\": 30, \"kinds\": [$ERRORS]}"
survives "30 % wrong Content-Length" '{"mode": "errors", "percent": 30, "kinds": ["short", "long"]}'
survives "30 % a bit flipped on the way" '{"mode": "errors", "percent": 30, "kinds": ["flip"]}'
