// Requests of the demo's models, as the scripts beside this send them.
import encoding from 'k6/encoding';

export const seconds = __ENV.SECONDS || '30';
export const grpcAddress = __ENV.GRPC || '127.0.0.1:8001';
export const httpAddress = __ENV.HTTP || '127.0.0.1:8000';

const prompts = ['The asyncio event loop', 'A context manager', 'An iterator is', 'The json module'];
const sampling = JSON.stringify({ max_tokens: 16, min_tokens: 16 });
const vector = Array.from({ length: 16 }, (_, number) => number);

export const prompt = (number) => prompts[number % prompts.length];

export const simpleGrpc = () => ({
  model_name: 'simple',
  inputs: ['INPUT0', 'INPUT1'].map((name) => ({
    name, datatype: 'INT32', shape: [1, 16], contents: { int_contents: vector },
  })),
});

const text = (name, value) => ({
  name, datatype: 'BYTES', shape: [1], contents: { bytes_contents: [encoding.b64encode(value)] },
});

export const streamGrpc = (number) => ({
  model_name: 'tiny_llm',
  inputs: [
    text('text_input', prompt(number)),
    text('sampling_parameters', sampling),
    { name: 'stream', datatype: 'BOOL', shape: [1], contents: { bool_contents: [true] } },
  ],
});

export const simpleHttp = () => JSON.stringify({
  inputs: ['INPUT0', 'INPUT1'].map((name) => ({ name, datatype: 'INT32', shape: [1, 16], data: vector })),
});

export const generateHttp = (number) => JSON.stringify({
  text_input: prompt(number), sampling_parameters: sampling, stream: false,
});
