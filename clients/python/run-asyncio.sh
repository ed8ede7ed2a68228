#!/bin/sh
# run-asyncio.sh HOST:PORT [AUTHORITY.pem]: the client on asyncio.
: "${1:?HOST:PORT is missing}"
authority=${2:+$(realpath "$2")}
cd "$(dirname "$0")" && PYTHONPATH=gen exec "${PYTHON:-python3}" client_asyncio.py "$1" ${authority:+"$authority"}
