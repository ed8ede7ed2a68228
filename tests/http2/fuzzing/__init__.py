"""Hostile bytes for our gRPC transport: recorded talks, changes of them, and a judge.

An input is what arrives between two turns of the event loop: the beginning of a talk recorded
from the C++ core's client, frames made up of valid and broken parts, either of them with bytes
changed, or bytes of no order. Connections get inputs until they are left, or enough is enough.
Everything below the socket is the server's own. What must hold: no exception escapes, nothing but
frames goes out and no more than what came in accounts for, errors of the connection end it, good
talks are answered, methods end with their connections, and neither objects nor memory grow.
"""
