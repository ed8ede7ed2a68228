// Penstock from C++, asking a server with the models of clients/models.
//
//   client HOST:PORT [AUTHORITY.pem]

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "grpc_service.grpc.pb.h"

using namespace std::chrono_literals;
using inference::GRPCInferenceService;
using inference::ModelInferRequest;
using inference::ModelInferResponse;
using inference::ModelStreamInferResponse;

namespace {

using Stub = GRPCInferenceService::Stub;

void check(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

void check(const grpc::Status& status) {
  check(status.ok(), std::to_string(status.error_code()) + ": " + status.error_message());
}

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  check(file.good(), "cannot read " + path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::shared_ptr<grpc::Channel> connect(const std::string& address, const std::string& authority) {
  auto credentials = grpc::InsecureChannelCredentials();
  if (!authority.empty()) {
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = read_file(authority);
    credentials = grpc::SslCredentials(options);
  }
  grpc::ChannelArguments arguments;
  // Calls that are refused are sent again, as the policy of all languages says.
  arguments.SetServiceConfigJSON(read_file("../retry_policy.json"));
  arguments.SetMaxReceiveMessageSize(-1);
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

void within(grpc::ClientContext& context, std::chrono::milliseconds time) {
  context.set_deadline(std::chrono::system_clock::now() + time);
}

// Elements are little-endian, as they are in memory on the machines this is for.
std::string integers(const std::vector<int32_t>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int32_t)};
}

std::vector<int32_t> numbers(const std::string& raw) {
  std::vector<int32_t> values(raw.size() / sizeof(int32_t));
  std::memcpy(values.data(), raw.data(), raw.size());
  return values;
}

// The contents of a BYTES tensor of one element.
std::string text(const std::string& value) {
  return integers({static_cast<int32_t>(value.size())}) + value;
}

void add_input(ModelInferRequest& request, const std::string& name, const std::string& datatype,
               const std::vector<int64_t>& shape, const std::string& contents) {
  auto* input = request.add_inputs();
  input->set_name(name);
  input->set_datatype(datatype);
  for (auto size : shape) input->add_shape(size);
  request.add_raw_input_contents(contents);
}

void unary(Stub& stub) {
  std::vector<int32_t> first, sums;
  for (int32_t i = 0; i < 16; ++i) {
    first.push_back(i);
    sums.push_back(i + 1);
  }
  ModelInferRequest request;
  request.set_model_name("simple");
  add_input(request, "INPUT0", "INT32", {1, 16}, integers(first));
  add_input(request, "INPUT1", "INT32", {1, 16}, integers(std::vector<int32_t>(16, 1)));
  grpc::ClientContext context;
  within(context, 30s);
  ModelInferResponse response;
  check(stub.ModelInfer(&context, request, &response));
  check(numbers(response.raw_output_contents(0)) == sums, "wrong sums");
}

// Statistics, which the server of the check gives only to those who send this metadata.
void metadata(Stub& stub) {
  grpc::ClientContext context;
  within(context, 30s);
  context.AddMetadata("triton-grpc-protocol-clients", "friends");
  inference::ModelStatisticsRequest request;
  request.set_name("simple");
  inference::ModelStatisticsResponse response;
  check(stub.ModelStatistics(&context, request, &response));
  check(response.model_stats(0).inference_stats().success().count() >= 1, "nothing was counted");
}

// A generation by tiny_llm: one request, a stream of tokens.
class Generation {
 public:
  Generation(Stub& stub, int max_tokens, std::chrono::milliseconds time) {
    within(context_, time);
    stream_ = stub.ModelStreamInfer(&context_);
    ModelInferRequest request;
    request.set_model_name("tiny_llm");
    add_input(request, "text_input", "BYTES", {1}, text("The file is"));
    add_input(request, "stream", "BOOL", {1}, std::string(1, '\1'));
    add_input(request, "sampling_parameters", "BYTES", {1},
              text("{\"max_tokens\": " + std::to_string(max_tokens) + ", \"ignore_eos\": true}"));
    // The last response is then an empty one, so that the end is known when the last token comes.
    auto& parameters = *request.mutable_parameters();
    parameters["triton_enable_empty_final_response"].set_bool_param(true);
    stream_->Write(request);
    stream_->WritesDone();
  }

  // The text of the next response; false at the end of the stream.
  bool next(std::string& token) {
    ModelStreamInferResponse message;
    if (!stream_->Read(&message)) return false;
    check(message.error_message().empty(), message.error_message());
    const auto& response = message.infer_response();
    auto final = response.parameters().find("triton_final_response");
    is_final_ = final != response.parameters().end() && final->second.bool_param();
    token = response.raw_output_contents_size() ? response.raw_output_contents(0).substr(4) : "";
    return true;
  }

  bool is_final() const { return is_final_; }
  void cancel() { context_.TryCancel(); }

  // How the call ended; what still comes is read first.
  grpc::Status finish() {
    for (std::string token; next(token);) {
    }
    return stream_->Finish();
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<ModelInferRequest, ModelStreamInferResponse>> stream_;
  bool is_final_ = false;
};

void stream(Stub& stub) {
  Generation generation(stub, 20, 30s);
  int count = 0;
  for (std::string token; generation.next(token); ++count) std::cout << token << std::flush;
  std::cout << std::endl;
  check(generation.finish());
  check(generation.is_final() && count > 2, "the stream is not complete");
}

// Leave after three tokens: the server stops the generation.
void cancel(Stub& stub) {
  Generation generation(stub, 1000, 30s);
  std::string token;
  for (int i = 0; i < 3; ++i) check(generation.next(token), "the stream has ended");
  generation.cancel();
  check(generation.finish().error_code() == grpc::StatusCode::CANCELLED, "not cancelled");
}

// A quarter of a second for a generation that takes longer: the tokens that come in time are kept.
void deadline(Stub& stub) {
  Generation generation(stub, 1000, 250ms);
  auto code = generation.finish().error_code();
  check(code == grpc::StatusCode::DEADLINE_EXCEEDED, "the deadline was not kept");
}

// A model that refuses each request id twice.
void retry(Stub& stub) {
  auto moment = std::chrono::system_clock::now().time_since_epoch().count();
  ModelInferRequest request;
  request.set_model_name("flaky");
  request.set_id("cpp-" + std::to_string(moment));
  add_input(request, "IN", "INT32", {1}, integers({0}));
  grpc::ClientContext context;
  within(context, 30s);
  ModelInferResponse response;
  check(stub.ModelInfer(&context, request, &response));
  check(numbers(response.raw_output_contents(0)) == std::vector<int32_t>{3}, "not 3 attempts");
}

}  // namespace

int main(int argc, char** argv) {
  auto channel = connect(argv[1], argc > 2 ? argv[2] : "");
  auto stub = GRPCInferenceService::NewStub(channel);
  const std::vector<std::pair<std::string, std::function<void(Stub&)>>> features = {
      {"unary", unary},   {"metadata", metadata}, {"stream", stream},
      {"cancel", cancel}, {"deadline", deadline}, {"retry", retry},
  };
  try {
    for (const auto& [name, feature] : features) {
      feature(*stub);
      std::cout << "ok " << name << std::endl;
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
  }
}
