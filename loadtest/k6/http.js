// Inference of `simple` and generation by `tiny_llm` over HTTP.
import http from 'k6/http';
import { check } from 'k6';
import { Trend } from 'k6/metrics';
import { generateHttp, httpAddress, seconds, simpleHttp } from './requests.js';

const infer_ms = new Trend('infer', true);
const generate_ms = new Trend('generate', true);
const headers = { headers: { 'Content-Type': 'application/json' } };

const scenario = (exec, vus) => ({ executor: 'constant-vus', exec, vus, duration: `${seconds}s`, gracefulStop: '10s' });
export const options = {
  scenarios: { infer: scenario('infer', 4), generate: scenario('generate', 2) },
  thresholds: { checks: ['rate==1'], http_req_failed: ['rate==0'] },
  summaryTrendStats: ['avg', 'med', 'p(95)', 'p(99)', 'max'],
};

export function infer() {
  const answer = http.post(`http://${httpAddress}/v2/models/simple/infer`, simpleHttp(), headers);
  infer_ms.add(answer.timings.duration);
  check(answer, { 'sums are right': (found) => found.status === 200 && found.json('outputs.0.data.15') === 30 });
}

export function generate() {
  const answer = http.post(`http://${httpAddress}/v2/models/tiny_llm/generate`, generateHttp(__ITER), headers);
  generate_ms.add(answer.timings.duration);
  check(answer, { 'text is answered': (found) => found.status === 200 && !!found.json('text_output') && !found.json('error') });
}

export const handleSummary = (data) => ({ [__ENV.REPORT || 'http.json']: JSON.stringify(data, null, 1) });
