#!/bin/sh
# Generates the stubs into gen/ and builds the client: gen/client.
set -eu
cd "$(dirname "$0")"
mkdir -p gen/inference
package='penstock/clients/go/gen/inference'
options="paths=source_relative,Mgrpc_service.proto=$package,Mmodel_config.proto=$package"
../protoc -I../../proto grpc_service.proto model_config.proto \
    --plugin=protoc-gen-go="$(go tool -n protoc-gen-go)" \
    --plugin=protoc-gen-go-grpc="$(go tool -n protoc-gen-go-grpc)" \
    --go_out=gen/inference --go_opt="$options" \
    --go-grpc_out=gen/inference --go-grpc_opt="$options"
go build -p 2 -o gen/client .
