"""Hostile bytes for our HTTP/1.1 connection: requests, changes of them, peers, and a judge.

An input is what arrives between two turns of the event loop: valid requests that are cut anywhere,
requests with a fault that RFC 9112 says must be refused, any of them with bytes changed, or bytes
of no order. Connections get inputs until they are left, or enough is enough. What must hold: no
exception escapes; nothing but whole responses goes out, and no more than what came in accounts
for; valid requests are answered, each by its own answer, in their order, also where others follow
that are not valid; a fault that must be refused ends the connection without an answer but a
refusal; where other parsers (h11, and httptools given all bytes at once) find requests in the same
bytes, they find the same; requests end with their connection, and neither objects nor memory grow.
"""
