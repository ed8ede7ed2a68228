"""The HTTP frontend: the KServe v2 protocol over the same facade as gRPC; translation only."""
