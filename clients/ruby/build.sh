#!/bin/sh
# Generates the stubs into gen/.
set -eu
cd "$(dirname "$0")"
mkdir -p gen
grpc_tools_ruby_protoc -I../../proto --ruby_out=gen --grpc_out=gen \
    grpc_service.proto model_config.proto
