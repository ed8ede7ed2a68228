#!/bin/sh
# Generates the stubs and compiles the client into gen/.
set -eu
cd "$(dirname "$0")"
mvn --quiet --batch-mode process-classes
