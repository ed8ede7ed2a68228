#!/bin/sh
# Installs the packages of package-lock.json, unless they are here.
set -eu
cd "$(dirname "$0")"
[ node_modules/.package-lock.json -nt package-lock.json ] || npm ci --silent
