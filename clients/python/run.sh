#!/bin/sh
# run.sh HOST:PORT [AUTHORITY.pem]: the client on threads.
: "${1:?HOST:PORT is missing}"
authority=${2:+$(realpath "$2")}
cd "$(dirname "$0")" && PYTHONPATH=gen exec "${PYTHON:-python3}" client.py "$1" ${authority:+"$authority"}
