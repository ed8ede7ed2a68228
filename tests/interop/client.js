// The interoperability cases of gRPC, with @grpc/grpc-js: node client.js TARGET CASE
//
// Ends with status 0 if the server did all that the case asks for. Modules are looked for where
// NODE_PATH says.
"use strict";

const assert = require("node:assert");
const path = require("node:path");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const LARGE = [271828, 314159];
const STREAMED = { up: [27182, 8, 1828, 45904], down: [31415, 9, 2653, 58979] };
const messages = loader.loadSync(path.join(__dirname, "interop.proto"));

function method(name, request, response, requestStream, responseStream) {
  const [encode, decode] = [messages[`grpc.testing.${request}`], messages[`grpc.testing.${response}`]];
  return {
    path: name.includes("/") ? name : `/grpc.testing.TestService/${name}`,
    requestStream,
    responseStream,
    requestSerialize: encode.serialize,
    responseDeserialize: decode.deserialize,
  };
}

const Client = grpc.makeGenericClientConstructor({
  empty: method("EmptyCall", "Empty", "Empty", false, false),
  unary: method("UnaryCall", "SimpleRequest", "SimpleResponse", false, false),
  up: method("StreamingInputCall", "StreamingInputCallRequest", "StreamingInputCallResponse", true, false),
  down: method("StreamingOutputCall", "StreamingOutputCallRequest", "StreamingOutputCallResponse", false, true),
  duplex: method("FullDuplexCall", "StreamingOutputCallRequest", "StreamingOutputCallResponse", true, true),
  unknownMethod: method("UnimplementedCall", "Empty", "Empty", false, false),
  unknownService: method("/grpc.testing.UnimplementedService/UnimplementedCall", "Empty", "Empty", false, false),
});

const body = (size) => ({ body: Buffer.alloc(size) });
const asking = (down, up) => ({ responseParameters: [{ size: down }], payload: body(up) });

// What a call with one response ends with: the error or null, the response, its metadata.
function answer(call, request, ...rest) {
  return new Promise((resolve) => {
    const found = { trailing: null, initial: null };
    const running = call(request, ...rest, (error, response) => Object.assign(found, { error, response }));
    running.on("metadata", (metadata) => (found.initial = metadata));
    running.on("status", (status) => resolve({ ...found, status, trailing: status.metadata }));
  });
}

// The sizes of a stream's responses, and its status.
function answers(call, onData = () => {}) {
  return new Promise((resolve) => {
    const sizes = [];
    call.on("data", (message) => onData(sizes.push(message.payload.body.length)));
    call.on("error", () => {}); // the status says it
    call.on("status", (status) => resolve({ sizes, status }));
  });
}

async function expectUnimplemented(call) {
  const { status } = await answer(call, {});
  assert.strictEqual(status.code, grpc.status.UNIMPLEMENTED);
}

async function expectStatus(client, code, message) {
  const responseStatus = { code, message };
  const unary = await answer(client.unary.bind(client), { responseStatus });
  assert.deepStrictEqual([unary.status.code, unary.status.details], [code, message]);
  const call = client.duplex();
  call.write({ responseStatus });
  call.end();
  const { status } = await answers(call);
  assert.deepStrictEqual([status.code, status.details], [code, message]);
}

const CASES = {
  async empty_unary(client) {
    assert.ok((await answer(client.empty.bind(client), {})).response);
  },
  async large_unary(client) {
    const request = { responseSize: LARGE[1], payload: body(LARGE[0]) };
    const { response } = await answer(client.unary.bind(client), request);
    assert.strictEqual(response.payload.body.length, LARGE[1]);
  },
  async client_streaming(client) {
    const total = await new Promise((resolve, reject) => {
      const call = client.up((error, response) => (error ? reject(error) : resolve(response)));
      STREAMED.up.forEach((size) => call.write({ payload: body(size) }));
      call.end();
    });
    assert.strictEqual(total.aggregatedPayloadSize, 74922);
  },
  async server_streaming(client) {
    const responseParameters = STREAMED.down.map((size) => ({ size }));
    const { sizes, status } = await answers(client.down({ responseParameters }));
    assert.deepStrictEqual([sizes, status.code], [STREAMED.down, grpc.status.OK]);
  },
  async ping_pong(client) {
    const call = client.duplex();
    const send = (turn) => call.write(asking(STREAMED.down[turn], STREAMED.up[turn]));
    send(0);
    const { sizes, status } = await answers(call, (count) => (count < 4 ? send(count) : call.end()));
    assert.deepStrictEqual([sizes, status.code], [STREAMED.down, grpc.status.OK]);
  },
  async empty_stream(client) {
    const call = client.duplex();
    call.end();
    const { sizes, status } = await answers(call);
    assert.deepStrictEqual([sizes, status.code], [[], grpc.status.OK]);
  },
  async server_compressed_unary(client) {
    for (const value of [true, false]) {
      const request = { responseCompressed: { value }, responseSize: LARGE[1], payload: body(LARGE[0]) };
      const { response } = await answer(client.unary.bind(client), request);
      assert.strictEqual(response.payload.body.length, LARGE[1]);
    }
  },
  async server_compressed_streaming(client) {
    const wanted = [[31415, true], [92653, false]];
    const responseParameters = wanted.map(([size, value]) => ({ size, compressed: { value } }));
    const { sizes, status } = await answers(client.down({ responseParameters }));
    assert.deepStrictEqual([sizes, status.code], [[31415, 92653], grpc.status.OK]);
  },
  async cancel_after_begin(client) {
    const call = client.up(() => {});
    call.on("error", () => {});
    const ended = new Promise((resolve) => call.on("status", resolve));
    call.cancel();
    assert.strictEqual((await ended).code, grpc.status.CANCELLED);
  },
  async cancel_after_first_response(client) {
    const call = client.duplex();
    call.write(asking(STREAMED.down[0], STREAMED.up[0]));
    const { sizes, status } = await answers(call, () => call.cancel());
    assert.deepStrictEqual([sizes.length, status.code], [1, grpc.status.CANCELLED]);
  },
  async timeout_on_sleeping_server(client) {
    const call = client.duplex({ deadline: Date.now() + 100 });
    call.write({ payload: body(27182), responseParameters: [{ size: 1, intervalUs: 60e6 }] });
    const { status } = await answers(call);
    assert.strictEqual(status.code, grpc.status.DEADLINE_EXCEEDED);
  },
  status_code_and_message: (client) => expectStatus(client, 2, "test status message"),
  special_status_message: (client) =>
    expectStatus(client, 2, "\t\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP \u{1f608}\t\n"),
  unimplemented_method: (client) => expectUnimplemented(client.unknownMethod.bind(client)),
  unimplemented_service: (client) => expectUnimplemented(client.unknownService.bind(client)),
  async custom_metadata(client) {
    const metadata = new grpc.Metadata();
    metadata.set("x-grpc-test-echo-initial", "test_initial_metadata_value");
    metadata.set("x-grpc-test-echo-trailing-bin", Buffer.from([0xab, 0xab, 0xab]));
    const found = await answer(client.unary.bind(client), { responseSize: 1, payload: body(1) }, metadata);
    assert.deepStrictEqual(found.initial.get("x-grpc-test-echo-initial"), ["test_initial_metadata_value"]);
    assert.ok(found.trailing.get("x-grpc-test-echo-trailing-bin")[0].equals(Buffer.from([0xab, 0xab, 0xab])));
  },
};

async function main(target, name) {
  const client = new Client(target, grpc.credentials.createInsecure());
  await CASES[name](client);
  client.close();
}

if (process.argv[3]) {
  main(process.argv[2], process.argv[3]).catch((error) => {
    console.error(error);
    process.exit(1);
  });
} else {
  console.log(Object.keys(CASES).join(" "));
}
