// Penstock from TypeScript, on Node, asking a server with the models of clients/models.
//
//   node gen/js/client.js HOST:PORT [AUTHORITY.pem]

import { strict as assert } from "node:assert";
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";

import {
  type ClientDuplexStream,
  credentials,
  Metadata,
  type ServiceError,
  status,
} from "@grpc/grpc-js";

import {
  GRPCInferenceServiceClient,
  ModelInferRequest,
  type ModelInferRequest_InferInputTensor,
  type ModelInferResponse,
  ModelStatisticsRequest,
  type ModelStatisticsResponse,
  type ModelStreamInferResponse,
} from "./gen/grpc_service.js";

type Answers = ClientDuplexStream<ModelInferRequest, ModelStreamInferResponse>;

function connect(address: string, authority?: string): GRPCInferenceServiceClient {
  const security = authority
    ? credentials.createSsl(readFileSync(authority))
    : credentials.createInsecure();
  return new GRPCInferenceServiceClient(address, security, {
    // Calls that are refused are sent again, as the policy of all languages says.
    "grpc.service_config": readFileSync("../retry_policy.json", "utf8"),
    "grpc.max_receive_message_length": -1,
  });
}

/** The promise of a unary call, which grpc-js answers through a callback. */
function answer<T>(call: (done: (error: ServiceError | null, response: T) => void) => unknown) {
  return new Promise<T>((resolve, reject) => {
    call((error, response) => (error ? reject(error) : resolve(response)));
  });
}

function within(seconds: number): { deadline: number } {
  return { deadline: Date.now() + seconds * 1000 };
}

async function unary(client: GRPCInferenceServiceClient): Promise<void> {
  const first = Array.from({ length: 16 }, (_, index) => index);
  const request = ModelInferRequest.fromPartial({
    modelName: "simple",
    inputs: [tensor("INPUT0", "INT32", 1, 16), tensor("INPUT1", "INT32", 1, 16)],
    rawInputContents: [integers(first), integers(first.map(() => 1))],
  });
  const response = await answer<ModelInferResponse>((done) =>
    client.modelInfer(request, new Metadata(), within(30), done),
  );
  assert.deepEqual(numbers(response.rawOutputContents[0]), first.map((value) => value + 1));
  assert.deepEqual(numbers(response.rawOutputContents[1]), first.map((value) => value - 1));
}

/** Statistics, which the server of the check gives only to those who send this metadata. */
async function metadata(client: GRPCInferenceServiceClient): Promise<void> {
  const sent = new Metadata();
  sent.set("triton-grpc-protocol-clients", "friends");
  const request = ModelStatisticsRequest.fromPartial({ name: "simple" });
  const response = await answer<ModelStatisticsResponse>((done) =>
    client.modelStatistics(request, sent, within(30), done),
  );
  assert.ok(response.modelStats[0].inferenceStats!.success!.count >= 1);
}

async function stream(client: GRPCInferenceServiceClient): Promise<void> {
  const final: boolean[] = [];
  for await (const message of generate(client, 20, 30)) {
    process.stdout.write(token(message));
    final.push(message.inferResponse!.parameters["triton_final_response"].boolParam!);
  }
  process.stdout.write("\n");
  assert.ok(final.length > 2 && final.indexOf(true) === final.length - 1);
}

/** Leave after three tokens: the server stops the generation. */
async function cancel(client: GRPCInferenceServiceClient): Promise<void> {
  const answers = generate(client, 1000, 30);
  let count = 0;
  const code = await codeAtTheEnd(answers, () => {
    if (++count === 3) answers.cancel();
  });
  assert.equal(code, status.CANCELLED);
}

/** A quarter of a second for a generation that takes longer: the tokens that come in time are kept. */
async function deadline(client: GRPCInferenceServiceClient): Promise<void> {
  const code = await codeAtTheEnd(generate(client, 1000, 0.25), () => {});
  assert.equal(code, status.DEADLINE_EXCEEDED);
}

/** A model that refuses each request id twice. */
async function retry(client: GRPCInferenceServiceClient): Promise<void> {
  const request = ModelInferRequest.fromPartial({
    modelName: "flaky",
    id: randomUUID(),
    inputs: [tensor("IN", "INT32", 1)],
    rawInputContents: [integers([0])],
  });
  const response = await answer<ModelInferResponse>((done) =>
    client.modelInfer(request, new Metadata(), within(30), done),
  );
  assert.deepEqual(numbers(response.rawOutputContents[0]), [3]);
}

function generate(client: GRPCInferenceServiceClient, tokens: number, seconds: number): Answers {
  const answers = client.modelStreamInfer(new Metadata(), within(seconds));
  answers.write(
    ModelInferRequest.fromPartial({
      modelName: "tiny_llm",
      inputs: [
        tensor("text_input", "BYTES", 1),
        tensor("stream", "BOOL", 1),
        tensor("sampling_parameters", "BYTES", 1),
      ],
      rawInputContents: [
        text("The file is"),
        Buffer.from([1]),
        text(JSON.stringify({ max_tokens: tokens, ignore_eos: true })),
      ],
      // The last response is then an empty one, so that the end is known when the last token comes.
      parameters: { triton_enable_empty_final_response: { boolParam: true } },
    }),
  );
  answers.end();
  return answers;
}

async function codeAtTheEnd(answers: Answers, onToken: () => void): Promise<status> {
  try {
    for await (const message of answers) {
      token(message);
      onToken();
    }
  } catch (error) {
    return (error as ServiceError).code;
  }
  return status.OK;
}

function token(message: ModelStreamInferResponse): string {
  if (message.errorMessage) throw new Error(message.errorMessage);
  const [raw] = message.inferResponse!.rawOutputContents;
  return raw ? raw.subarray(4).toString() : "";
}

function tensor(
  name: string,
  datatype: string,
  ...shape: number[]
): Partial<ModelInferRequest_InferInputTensor> {
  return { name, datatype, shape };
}

function integers(values: number[]): Buffer {
  const raw = Buffer.alloc(values.length * 4);
  values.forEach((value, index) => raw.writeInt32LE(value, index * 4));
  return raw;
}

function numbers(raw: Buffer): number[] {
  return Array.from({ length: raw.length / 4 }, (_, index) => raw.readInt32LE(index * 4));
}

/** The contents of a BYTES tensor of one element. */
function text(value: string): Buffer {
  const length = Buffer.alloc(4);
  length.writeUInt32LE(Buffer.byteLength(value));
  return Buffer.concat([length, Buffer.from(value)]);
}

const [address, authority] = process.argv.slice(2);
const client = connect(address, authority);
for (const feature of [unary, metadata, stream, cancel, deadline, retry]) {
  try {
    await feature(client);
  } catch (error) {
    const { code, details } = error as ServiceError;
    if (details === undefined) throw error;
    console.error(`${feature.name}: ${status[code]}: ${details}`);
    process.exit(1);
  }
  console.log("ok", feature.name);
}
client.close();
