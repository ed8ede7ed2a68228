#!/bin/sh
# run.sh HOST:PORT [AUTHORITY.pem]
: "${1:?HOST:PORT is missing}"
authority=${2:+$(realpath "$2")}
cd "$(dirname "$0")" && exec gen/client "$1" ${authority:+"$authority"}
