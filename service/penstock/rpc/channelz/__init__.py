"""`grpc.channelz.v1`: the server and its connections, as each transport counts them."""
