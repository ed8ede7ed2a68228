package penstock;

import com.google.gson.Gson;
import com.google.gson.reflect.TypeToken;
import inference.GRPCInferenceServiceGrpc;
import inference.GRPCInferenceServiceGrpc.GRPCInferenceServiceBlockingV2Stub;
import inference.GrpcService.ModelInferRequest;
import inference.GrpcService.ModelInferResponse;
import inference.GrpcService.ModelStatisticsRequest;
import inference.GrpcService.ModelStreamInferResponse;
import io.grpc.ChannelCredentials;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusException;
import io.grpc.TlsChannelCredentials;
import io.grpc.stub.BlockingClientCall;
import io.grpc.stub.MetadataUtils;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;

/**
 * Penstock from Java, asking a server with the models of clients/models: {@code Client HOST:PORT
 * [AUTHORITY.pem]}.
 */
public final class Client {
  private static final long LONG = 30_000;
  private static final Metadata.Key<String> KEY =
      Metadata.Key.of("triton-grpc-protocol-clients", Metadata.ASCII_STRING_MARSHALLER);

  private final GRPCInferenceServiceBlockingV2Stub stub;

  private Client(ManagedChannel channel) {
    stub = GRPCInferenceServiceGrpc.newBlockingV2Stub(channel);
  }

  private static ManagedChannel connect(String address, String authority) throws IOException {
    ChannelCredentials credentials =
        authority == null
            ? InsecureChannelCredentials.create()
            : TlsChannelCredentials.newBuilder().trustManager(new File(authority)).build();
    // Calls that are refused are sent again, as the policy of all languages says.
    String policy = Files.readString(Path.of("../retry_policy.json"));
    Map<String, ?> config = new Gson().fromJson(policy, new TypeToken<Map<String, ?>>() {});
    return Grpc.newChannelBuilder(address, credentials)
        .defaultServiceConfig(config)
        .maxInboundMessageSize(Integer.MAX_VALUE)
        .build();
  }

  private void unary() throws StatusException {
    ModelInferResponse response = within(LONG).modelInfer(Messages.sums());
    check(
        Messages.numbers(response.getRawOutputContents(0))
            .equals(IntStream.range(1, 17).boxed().toList()));
    check(
        Messages.numbers(response.getRawOutputContents(1))
            .equals(IntStream.range(-1, 15).boxed().toList()));
  }

  /** Statistics, which the server of the check gives only to those who send this metadata. */
  private void metadata() throws StatusException {
    Metadata sent = new Metadata();
    sent.put(KEY, "friends");
    var friends = within(LONG).withInterceptors(MetadataUtils.newAttachHeadersInterceptor(sent));
    var request = ModelStatisticsRequest.newBuilder().setName("simple").build();
    var statistics = friends.modelStatistics(request).getModelStats(0).getInferenceStats();
    check(statistics.getSuccess().getCount() >= 1);
  }

  private void stream() throws Exception {
    var answers = generate(20, LONG);
    int count = 0;
    boolean ended = false;
    for (var message = answers.read(); message != null; message = answers.read()) {
      check(!ended);
      System.out.print(Messages.token(message));
      ended = Messages.isFinal(message);
      count++;
    }
    System.out.println();
    check(ended && count > 2);
  }

  /** Leave after three tokens: the server stops the generation. */
  private void cancel() throws Exception {
    var answers = generate(1000, LONG);
    for (int i = 0; i < 3; i++) {
      Messages.token(answers.read());
    }
    answers.cancel("three tokens are enough", null);
    check(codeAtTheEnd(answers) == Status.Code.CANCELLED);
  }

  /** A quarter of a second for a generation that takes longer: the tokens that come in time are kept. */
  private void deadline() throws Exception {
    check(codeAtTheEnd(generate(1000, 250)) == Status.Code.DEADLINE_EXCEEDED);
  }

  /** A model that refuses each request id twice. */
  private void retry() throws StatusException {
    ModelInferResponse response = within(LONG).modelInfer(Messages.attempts());
    check(Messages.numbers(response.getRawOutputContents(0)).get(0) == 3);
  }

  private BlockingClientCall<ModelInferRequest, ModelStreamInferResponse> generate(
      int maxTokens, long milliseconds) throws Exception {
    var answers = within(milliseconds).modelStreamInfer();
    answers.write(Messages.generation(maxTokens));
    answers.halfClose();
    return answers;
  }

  private static Status.Code codeAtTheEnd(BlockingClientCall<?, ModelStreamInferResponse> answers)
      throws InterruptedException {
    try {
      for (var message = answers.read(); message != null; message = answers.read()) {
        Messages.token(message);
      }
    } catch (StatusException error) {
      return error.getStatus().getCode();
    }
    return Status.Code.OK;
  }

  private GRPCInferenceServiceBlockingV2Stub within(long milliseconds) {
    return stub.withDeadlineAfter(milliseconds, TimeUnit.MILLISECONDS);
  }

  private static void check(boolean condition) {
    if (!condition) {
      throw new IllegalStateException("not as expected");
    }
  }

  private interface Feature {
    void run() throws Exception;
  }

  private void run(String name, Feature feature) throws Exception {
    feature.run();
    System.out.println("ok " + name);
  }

  /** Tries every feature of the protocol once. */
  public static void main(String[] arguments) throws Exception {
    ManagedChannel channel = connect(arguments[0], arguments.length > 1 ? arguments[1] : null);
    try {
      Client client = new Client(channel);
      client.run("unary", client::unary);
      client.run("metadata", client::metadata);
      client.run("stream", client::stream);
      client.run("cancel", client::cancel);
      client.run("deadline", client::deadline);
      client.run("retry", client::retry);
    } finally {
      channel.shutdownNow().awaitTermination(10, TimeUnit.SECONDS);
    }
  }
}
