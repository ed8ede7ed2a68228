"""An honest client at its worst, for our gRPC transport: all that it does is allowed, and checked.

Where the fuzzer asks only that nothing breaks, here every call has an answer to get. Calls are
interleaved; their header blocks live on a dynamic table that changes all the time, and come in
pieces, padded, with priorities; messages are cut anywhere, compressed, ended by DATA, by nothing
or by trailers; windows and frames of the client are tiny, grow and shrink; it hears what the
server says only later, so that frames of streams that are gone are under way; sockets pause, and
servers leave.
"""
