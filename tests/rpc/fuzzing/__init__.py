"""Hostile `ModelInferRequest` messages: their layout and typed contents, against protobuf.

An input is one message: fields of requests in any order and in any of the encodings that protobuf
knows, with numbers that overflow, contents in pieces, unknown fields, bytes changed or cut off, or
bytes of no order. What must hold: the message is refused where protobuf refuses it; else the
request that is decoded from it, or the error that refuses it, is that of protobuf parsing the whole
message. The exception are groups, which are refused.
"""
