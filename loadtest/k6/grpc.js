// Unary calls of `simple` and token streams of `tiny_llm` over gRPC; errors inside of streams count.
import { Client, StatusOK, Stream } from 'k6/net/grpc';
import { check } from 'k6';
import { Trend } from 'k6/metrics';
import { grpcAddress, seconds, simpleGrpc, streamGrpc } from './requests.js';

const service = 'inference.GRPCInferenceService/';
const unary = new Trend('unary', true);
const ttft = new Trend('ttft', true);
const gap = new Trend('gap', true);
const stream = new Trend('stream', true);
const client = new Client();

const scenario = (exec, vus) => ({ executor: 'constant-vus', exec, vus, duration: `${seconds}s`, gracefulStop: '10s' });
export const options = {
  scenarios: { infer: scenario('infer', 4), generate: scenario('generate', 4) },
  thresholds: { checks: ['rate==1'], unary: ['p(95)<5000'], ttft: ['p(95)<10000'] },
  summaryTrendStats: ['avg', 'med', 'p(95)', 'p(99)', 'max'],
};

const connect = () => { if (__ITER === 0) client.connect(grpcAddress, { plaintext: true, reflect: true }); };

export function infer() {
  connect();
  const begin = Date.now();
  const answer = client.invoke(service + 'ModelInfer', simpleGrpc());
  unary.add(Date.now() - begin);
  check(answer, { 'unary is answered': (found) => found.status === StatusOK && found.message.rawOutputContents.length === 2 });
}

export function generate() {
  connect();
  return new Promise((done) => {
    const begin = Date.now();
    let last = begin;
    let responses = 0;
    let fault = '';
    const call = new Stream(client, service + 'ModelStreamInfer');
    call.on('data', (message) => {
      const now = Date.now();
      (responses++ ? gap : ttft).add(now - last);
      last = now;
      fault = fault || message.errorMessage;
    });
    call.on('error', (error) => { fault = fault || JSON.stringify(error); });
    call.on('end', () => {
      stream.add(Date.now() - begin);
      if (!check(null, { 'stream is answered': () => responses > 0 && !fault })) console.error(`stream: ${fault}`);
      done();
    });
    call.write(streamGrpc(__ITER));
    call.end();
  });
}

export const handleSummary = (data) => ({ [__ENV.REPORT || 'grpc.json']: JSON.stringify(data, null, 1) });
