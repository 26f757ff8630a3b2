#!/bin/bash
# Eight nodes that are each other's cache: see peers-namespaces.sh.
# ctest: long
PEERS=8 exec bash "$(dirname "$0")/peers-namespaces.sh"
