#!/bin/sh
# Generates the stubs and builds the client: gen/client.
set -eu
cd "$(dirname "$0")"
cmake -S . -B gen --log-level=WARNING
cmake --build gen --parallel 2 -- --quiet
