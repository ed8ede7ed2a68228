# frozen_string_literal: true

# Penstock from Ruby, asking a server with the models of clients/models.
#
#   ruby -Igen client.rb HOST:PORT [AUTHORITY.pem]

require 'grpc'
require 'json'
require 'securerandom'
require 'grpc_service_services_pb'

# The calls of this client, each within its own deadline.
class Client
  LONG = 30

  def initialize(address, authority)
    security = authority ? GRPC::Core::ChannelCredentials.new(File.read(authority)) : :this_channel_is_insecure
    # Calls that are refused are sent again, as the policy of all languages says.
    arguments = {
      'grpc.enable_retries' => 1,
      'grpc.service_config' => File.read(File.join(__dir__, '..', 'retry_policy.json')),
      'grpc.max_receive_message_length' => -1
    }
    @stub = Inference::GRPCInferenceService::Stub.new(address, security, channel_args: arguments)
  end

  def unary
    request = Inference::ModelInferRequest.new(
      model_name: 'simple',
      inputs: [tensor('INPUT0', 'INT32', 1, 16), tensor('INPUT1', 'INT32', 1, 16)],
      raw_input_contents: [(0..15).to_a.pack('l<*'), ([1] * 16).pack('l<*')]
    )
    response = @stub.model_infer(request, deadline: from_now(LONG))
    sums, differences = response.raw_output_contents.map { |raw| raw.unpack('l<*') }
    check(sums == (1..16).to_a && differences == (-1..14).to_a)
  end

  # Statistics, which the server of the check gives only to those who send this metadata.
  def metadata
    request = Inference::ModelStatisticsRequest.new(name: 'simple')
    sent = { 'triton-grpc-protocol-clients' => 'friends' }
    response = @stub.model_statistics(request, deadline: from_now(LONG), metadata: sent)
    check(response.model_stats.first.inference_stats.success.count >= 1)
  end

  def stream
    final = []
    generation(20, LONG).execute.each do |message|
      print token(message)
      final << message.infer_response.parameters['triton_final_response'].bool_param
    end
    puts
    check(final.length > 2 && final.index(true) == final.length - 1)
  end

  # Leave after three tokens: the server stops the generation.
  def cancel
    operation = generation(1000, LONG)
    count = 0
    operation.execute.each do |message|
      token(message)
      count += 1
      operation.cancel if count == 3
    end
    check(false)
  rescue GRPC::Cancelled
    check(count >= 3)
  end

  # A quarter of a second for a generation that takes longer: the tokens that come in time are kept.
  def deadline
    generation(1000, 0.25).execute.each { |message| token(message) }
    check(false)
  rescue GRPC::DeadlineExceeded
    nil
  end

  # A model that refuses each request id twice.
  def retry
    request = Inference::ModelInferRequest.new(
      model_name: 'flaky',
      id: SecureRandom.uuid,
      inputs: [tensor('IN', 'INT32', 1)],
      raw_input_contents: [[0].pack('l<')]
    )
    response = @stub.model_infer(request, deadline: from_now(LONG))
    check(response.raw_output_contents.first.unpack('l<*') == [3])
  end

  private

  def generation(max_tokens, seconds)
    request = Inference::ModelInferRequest.new(
      model_name: 'tiny_llm',
      inputs: [tensor('text_input', 'BYTES', 1), tensor('stream', 'BOOL', 1), tensor('sampling_parameters', 'BYTES', 1)],
      raw_input_contents: [
        text('The file is'), "\x01".b, text(JSON.generate(max_tokens: max_tokens, ignore_eos: true))
      ],
      # The last response is then an empty one, so that the end is known when the last token comes.
      parameters: { 'triton_enable_empty_final_response' => Inference::InferParameter.new(bool_param: true) }
    )
    @stub.model_stream_infer([request], deadline: from_now(seconds), return_op: true)
  end

  def token(message)
    raise message.error_message unless message.error_message.empty?

    raw = message.infer_response.raw_output_contents.first
    raw ? raw.byteslice(4..).force_encoding('UTF-8') : ''
  end

  def tensor(name, datatype, *shape)
    Inference::ModelInferRequest::InferInputTensor.new(name: name, datatype: datatype, shape: shape)
  end

  # The contents of a BYTES tensor of one element.
  def text(value)
    [value.bytesize].pack('L<') + value.b
  end

  def from_now(seconds)
    Time.now + seconds
  end

  def check(condition)
    raise 'not as expected' unless condition
  end
end

client = Client.new(*ARGV.values_at(0, 1))
%i[unary metadata stream cancel deadline retry].each do |feature|
  client.public_send(feature)
  puts "ok #{feature}"
end
