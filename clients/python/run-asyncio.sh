#!/bin/sh
# run-asyncio.sh HOST:PORT [AUTHORITY.pem]: the client on asyncio.
: "${1:?HOST:PORT is missing}"
echo "asking $1, which wants the models of clients/models: penstock serve --model-repository=clients/models" >&2
authority=${2:+$(realpath "$2")}
cd "$(dirname "$0")" && PYTHONPATH=gen exec "${PYTHON:-python3}" client_asyncio.py "$1" ${authority:+"$authority"}
