#!/bin/sh
# Generates the stubs and builds the client: gen/debug/penstock-client.
set -eu
cd "$(dirname "$0")"
PROTOC="${PROTOC:-$(cd .. && pwd)/protoc}" cargo build --quiet --locked --target-dir gen
