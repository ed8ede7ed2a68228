"""The requests that both clients send, and what their answers hold."""

import json
import struct
import uuid
from pathlib import Path

import grpc_service_pb2 as pb

# Which calls are sent again, how often and when: gRPC does it, in every language that knows how.
RETRY_POLICY = (Path(__file__).parents[1] / "retry_policy.json").read_text()
CHANNEL_OPTIONS = [
    ("grpc.service_config", RETRY_POLICY),
    ("grpc.max_receive_message_length", -1),
]
# The server of the check serves statistics only to those who send this; others ignore it.
METADATA = (("triton-grpc-protocol-clients", "friends"),)


def tensor(name: str, datatype: str, *shape: int) -> pb.ModelInferRequest.InferInputTensor:
    return pb.ModelInferRequest.InferInputTensor(name=name, datatype=datatype, shape=shape)


def text(value: str) -> bytes:
    """The contents of a BYTES tensor of one element."""
    return struct.pack("<I", len(value.encode())) + value.encode()


def sums() -> pb.ModelInferRequest:
    """0 to 15 and sixteen times 1, which `simple` adds and subtracts."""
    return pb.ModelInferRequest(
        model_name="simple",
        inputs=[tensor("INPUT0", "INT32", 1, 16), tensor("INPUT1", "INT32", 1, 16)],
        raw_input_contents=[struct.pack("<16i", *range(16)), struct.pack("<16i", *[1] * 16)],
    )


def generation(max_tokens: int) -> pb.ModelInferRequest:
    request = pb.ModelInferRequest(
        model_name="tiny_llm",
        id="generation",
        inputs=[
            tensor("text_input", "BYTES", 1),
            tensor("stream", "BOOL", 1),
            tensor("sampling_parameters", "BYTES", 1),
        ],
        raw_input_contents=[
            text("The file is"),
            b"\x01",
            text(json.dumps({"max_tokens": max_tokens, "ignore_eos": True})),
        ],
    )
    # The last response is then an empty one, so that the end is known when the last token comes.
    request.parameters["triton_enable_empty_final_response"].bool_param = True
    return request


def attempts() -> pb.ModelInferRequest:
    """A request that `flaky` refuses twice."""
    return pb.ModelInferRequest(
        model_name="flaky",
        id=str(uuid.uuid4()),
        inputs=[tensor("IN", "INT32", 1)],
        raw_input_contents=[struct.pack("<i", 0)],
    )


def integers(response: pb.ModelInferResponse, index: int = 0) -> list[int]:
    """An INT32 output."""
    raw = response.raw_output_contents[index]
    return list(struct.unpack(f"<{len(raw) // 4}i", raw))


def token(message: pb.ModelStreamInferResponse) -> str:
    """The text of one response; empty for the final one."""
    if message.error_message:
        raise RuntimeError(message.error_message)
    contents = message.infer_response.raw_output_contents
    return contents[0][4:].decode() if contents else ""


def is_final(message: pb.ModelStreamInferResponse) -> bool:
    return message.infer_response.parameters["triton_final_response"].bool_param
