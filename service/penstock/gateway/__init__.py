"""The HTTP frontend: KServe v2 over the same facade as gRPC. It translates, it decides nothing."""
