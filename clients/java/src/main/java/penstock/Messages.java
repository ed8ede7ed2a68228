package penstock;

import com.google.protobuf.ByteString;
import inference.GrpcService.InferParameter;
import inference.GrpcService.ModelInferRequest;
import inference.GrpcService.ModelInferRequest.InferInputTensor;
import inference.GrpcService.ModelStreamInferResponse;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.List;
import java.util.UUID;
import java.util.stream.IntStream;

/** The requests that the client sends, and what their answers hold. */
final class Messages {
  private Messages() {}

  /** 0 to 15 and sixteen times 1, which {@code simple} adds and subtracts. */
  static ModelInferRequest sums() {
    return ModelInferRequest.newBuilder()
        .setModelName("simple")
        .addInputs(tensor("INPUT0", "INT32", 1, 16))
        .addInputs(tensor("INPUT1", "INT32", 1, 16))
        .addRawInputContents(integers(IntStream.range(0, 16).toArray()))
        .addRawInputContents(integers(IntStream.generate(() -> 1).limit(16).toArray()))
        .build();
  }

  static ModelInferRequest generation(int maxTokens) {
    String sampling = "{\"max_tokens\": %d, \"ignore_eos\": true}".formatted(maxTokens);
    InferParameter yes = InferParameter.newBuilder().setBoolParam(true).build();
    return ModelInferRequest.newBuilder()
        .setModelName("tiny_llm")
        .addInputs(tensor("text_input", "BYTES", 1))
        .addInputs(tensor("stream", "BOOL", 1))
        .addInputs(tensor("sampling_parameters", "BYTES", 1))
        .addRawInputContents(text("The file is"))
        .addRawInputContents(ByteString.copyFrom(new byte[] {1}))
        .addRawInputContents(text(sampling))
        // The last response is then empty, so that the end is known when the last token comes.
        .putParameters("triton_enable_empty_final_response", yes)
        .build();
  }

  /** A request that {@code flaky} refuses twice. */
  static ModelInferRequest attempts() {
    return ModelInferRequest.newBuilder()
        .setModelName("flaky")
        .setId(UUID.randomUUID().toString())
        .addInputs(tensor("IN", "INT32", 1))
        .addRawInputContents(integers(0))
        .build();
  }

  /** The text of one response; empty for the final one. */
  static String token(ModelStreamInferResponse message) {
    if (!message.getErrorMessage().isEmpty()) {
      throw new IllegalStateException(message.getErrorMessage());
    }
    List<ByteString> contents = message.getInferResponse().getRawOutputContentsList();
    return contents.isEmpty() ? "" : contents.get(0).substring(4).toStringUtf8();
  }

  static boolean isFinal(ModelStreamInferResponse message) {
    InferParameter no = InferParameter.getDefaultInstance();
    return message
        .getInferResponse()
        .getParametersOrDefault("triton_final_response", no)
        .getBoolParam();
  }

  static List<Integer> numbers(ByteString raw) {
    ByteBuffer buffer = raw.asReadOnlyByteBuffer().order(ByteOrder.LITTLE_ENDIAN);
    return IntStream.range(0, raw.size() / 4).map(i -> buffer.getInt(i * 4)).boxed().toList();
  }

  private static InferInputTensor tensor(String name, String datatype, long... shape) {
    InferInputTensor.Builder tensor =
        InferInputTensor.newBuilder().setName(name).setDatatype(datatype);
    for (long size : shape) {
      tensor.addShape(size);
    }
    return tensor.build();
  }

  private static ByteString integers(int... values) {
    ByteBuffer raw = ByteBuffer.allocate(values.length * 4).order(ByteOrder.LITTLE_ENDIAN);
    for (int value : values) {
      raw.putInt(value);
    }
    return ByteString.copyFrom(raw.flip());
  }

  /** The contents of a BYTES tensor of one element. */
  private static ByteString text(String value) {
    ByteString encoded = ByteString.copyFromUtf8(value);
    return integers(encoded.size()).concat(encoded);
  }
}
