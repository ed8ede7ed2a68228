#!/bin/sh
# Generates the stubs into gen/.
set -eu
cd "$(dirname "$0")"
mkdir -p gen
../protoc -I../../proto --python_out=gen --grpc_python_out=gen grpc_service.proto model_config.proto
