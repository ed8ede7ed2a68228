#!/bin/sh
# Generates the stubs into gen/ and compiles the client: gen/js/client.js.
set -eu
cd "$(dirname "$0")"
./packages.sh
mkdir -p gen
../protoc -I../../proto grpc_service.proto model_config.proto \
    --plugin=protoc-gen-ts_proto=node_modules/.bin/protoc-gen-ts_proto --ts_proto_out=gen \
    --ts_proto_opt=outputServices=grpc-js,esModuleInterop=true,env=node,importSuffix=.js
node_modules/.bin/tsc
