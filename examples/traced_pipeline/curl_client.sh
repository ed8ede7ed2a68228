#!/bin/sh
# Asks the pipeline over HTTP, with a trace context of its own: curl_client.sh HOST:PORT; prints the trace id.
set -eu
trace=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
span=$(od -An -N8 -tx1 /dev/urandom | tr -d ' \n')
curl -sfN "http://$1/v2/models/rag/generate_stream" -H "traceparent: 00-$trace-$span-01" -o /dev/null -d '{
  "question": "How does one open a file?", "stream": true,
  "sampling_parameters": "{\"max_tokens\": 24, \"temperature\": 0, \"ignore_eos\": true}"}'
echo "$trace"
