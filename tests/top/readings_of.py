"""Readings of made-up servers."""

from __future__ import annotations

from penstock_client.reading.counters import BatchCounts, ModelCounters, ModelKey
from penstock_client.reading.kserve import ServerAnswers
from penstock_client.reading.metrics_page import MetricsPage, read_page
from penstock_client.reading.views import ModelEntry
from penstock_client.top.readings import Readings

NO_PAGE: Readings[MetricsPage] = Readings()
NO_ANSWERS: Readings[ServerAnswers] = Readings()

PAGE = """\
nv_inference_request_success{{model="bert",version="1"}} {bert}
nv_inference_count{{model="bert",version="1"}} {inferences}
nv_inference_exec_count{{model="bert",version="1"}} {executions}
nv_inference_request_duration_us{{model="bert",version="1"}} {request_us}
nv_inference_queue_duration_us{{model="bert",version="1"}} {queue_us}
nv_inference_compute_input_duration_us{{model="bert",version="1"}} {input_us}
nv_inference_compute_infer_duration_us{{model="bert",version="1"}} {infer_us}
nv_inference_compute_output_duration_us{{model="bert",version="1"}} {input_us}
nv_inference_pending_request_count{{model="bert",version="1"}} 12
nv_inference_request_failure{{model="bert",reason="BACKEND",version="1"}} {failed}
nv_inference_request_failure{{model="bert",reason="CANCELED",version="1"}} {cancelled}
nv_cache_num_hits_per_model{{model="bert",version="1"}} {hits}
nv_cache_num_misses_per_model{{model="bert",version="1"}} {misses}
penstock_in_flight_requests{{model="bert",version="1"}} 20
penstock_cancelled_total{{model="bert",phase="queued",version="1"}} {cancelled}
penstock_queue_duration_seconds_bucket{{model="bert",version="1",le="0.001"}} {executions}
penstock_queue_duration_seconds_bucket{{model="bert",version="1",le="0.004"}} {bert}
penstock_queue_duration_seconds_bucket{{model="bert",version="1",le="+Inf"}} {bert}
nv_inference_request_success{{model="llama",version="2"}} {llama}
nv_inference_count{{model="llama",version="2"}} {llama}
nv_inference_exec_count{{model="llama",version="2"}} {llama}
nv_inference_request_duration_us{{model="llama",version="2"}} {llama}500000
nv_inference_pending_request_count{{model="llama",version="2"}} 0
nv_inference_request_failure{{model="llama",reason="BACKEND",version="2"}} 0
penstock_in_flight_requests{{model="llama",version="2"}} 3
penstock_llm_generation_tokens_total{{model="llama",version="2"}} {tokens}
penstock_llm_running_requests{{model="llama",version="2"}} 3
penstock_llm_kv_cache_usage{{model="llama",version="2"}} 0.43
penstock_model_process_up{{model_instance="llama_0_0",model="llama",version="2"}} 1
penstock_model_process_pid{{model_instance="llama_0_0",model="llama",version="2"}} 4242
penstock_model_process_resident_memory_bytes{{model_instance="llama_0_0",{llama_labels}}} {memory}
penstock_model_process_restarts_total{{model_instance="llama_0_0",model="llama",version="2"}} 1
penstock_model_process_up{{model_instance="llama_0_1",model="llama",version="2"}} 0
penstock_model_process_restarts_total{{model_instance="llama_0_1",model="llama",version="2"}} 4
nv_cpu_utilization 0.43
nv_cpu_memory_used_bytes 12884901888
nv_cpu_memory_total_bytes 68719476736
nv_gpu_utilization{{gpu_uuid="GPU-1"}} 0.83
nv_gpu_memory_used_bytes{{gpu_uuid="GPU-1"}} 64424509440
nv_gpu_memory_total_bytes{{gpu_uuid="GPU-1"}} 85899345920
nv_gpu_power_usage{{gpu_uuid="GPU-1"}} 412
"""


def _page(seconds: int) -> MetricsPage:
    """What the server has counted some seconds after its start, at constant rates."""
    return read_page(
        PAGE.format(
            bert=1000 * seconds,
            inferences=4000 * seconds,
            executions=250 * seconds,
            request_us=5_200_000 * seconds,
            queue_us=2_100_000 * seconds,
            input_us=100_000 * seconds,
            infer_us=2_700_000 * seconds,
            failed=3 * seconds,
            cancelled=7 * seconds,
            hits=100 * seconds,
            misses=900 * seconds,
            llama=2 * seconds,
            tokens=345 * seconds,
            memory=6 << 30,
            llama_labels='model="llama",version="2"',
        )
    )


def _answers(seconds: int) -> ServerAnswers:
    small, large = BatchCounts(50.0 * seconds, 0.1, 0.4, 0.1), BatchCounts(200.0 * seconds, 1, 3, 1)
    return ServerAnswers(
        ready=True,
        server="triton 0.1.0",
        states={
            ModelKey("bert", "1"): ModelEntry("bert", "1", "READY"),
            ModelKey("llama", "2"): ModelEntry("llama", "2", "READY"),
            ModelKey("ranker", "1"): ModelEntry(
                "ranker",
                "1",
                "UNAVAILABLE",
                "failed to read text proto from ranker/config.pbtxt:4:48",
            ),
            ModelKey("spare", ""): ModelEntry("spare", "", ""),
        },
        counters={ModelKey("bert", "1"): ModelCounters(), ModelKey("llama", "2"): ModelCounters()},
        batches={ModelKey("bert", "1"): {4: small, 16: large}},
    )


def page_readings() -> Readings[MetricsPage]:
    """Two pages, two seconds apart, the second read at 102."""
    return NO_PAGE.succeeded(_page(10), 100.0).succeeded(_page(12), 102.0)


def answer_readings() -> Readings[ServerAnswers]:
    """Two answers, two seconds apart, the second read at 102."""
    return NO_ANSWERS.succeeded(_answers(10), 100.0).succeeded(_answers(12), 102.0)
