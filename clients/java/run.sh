#!/bin/sh
# run.sh HOST:PORT [AUTHORITY.pem]
: "${1:?HOST:PORT is missing}"
echo "asking $1, which wants the models of clients/models: penstock serve --model-repository=clients/models" >&2
authority=${2:+$(realpath "$2")}
cd "$(dirname "$0")" && exec java -cp 'gen/classes:gen/lib/*' penstock.Client "$1" ${authority:+"$authority"}
