"""Differences between the contract, the recorded Triton 2.51 and this server, and which side holds.

The tests that ask the recorded questions again expect these and no others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Difference:
    """Rows about which not all agree."""

    rows: tuple[str, ...]
    contract: str
    recorded: str
    here: str
    why: str
    cases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The recorded questions whose answers differ, by file."""

    def line(self) -> str:
        """A row of a Markdown table."""
        cells = (", ".join(self.rows), self.contract, self.recorded, self.here, self.why)
        return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


_CONTRACT = "the contract"

BETWEEN: tuple[Difference, ...] = (
    Difference(
        ("GP-09", "PY-18"),
        "a model's response may carry parameters",
        "`pb_utils.InferenceResponse` knows no `parameters`: a TypeError fails the request",
        _CONTRACT,
        "newer models set them; a model written for 2.51 notices nothing",
        {
            "grpc_infer_ok": ("model response parameters",),
            "grpc_streams": ("dec_failer mode 7", "dec_failer mode 7 empty-final"),
            "http_infer_ok": ("model response parameters",),
            "http_generate": ("failer 31 parameters", "dec_failer 7", "dec_failer 7 stream"),
        },
    ),
    Difference(
        ("HG-07",),
        "`generate` refuses what has not exactly one response",
        "with the error text and status 200, when the model has sent all; a success in statistics",
        "with the error text and status 400, at the second response; the request is cancelled",
        "clients and proxies look at the status, an error is no success, and nobody wants the rest",
        {"http_generate": ("tokens 0 on generate", "dec_failer 0", "dec_failer 1", "dec_failer 6")},
    ),
    Difference(
        ("X-08", "CL-47", "SEC-05"),
        "clients may share memory only with `--allow-client-shm=true`",
        "no such flag: they always may",
        _CONTRACT,
        "the safer default; the recorded questions are asked of a server with the flag",
    ),
    Difference(
        ("H-36", "HI-17", "CL-21", "SEC-04"),
        "`--http-max-input-size` (64 MiB) bounds JSON, raw bodies and what compression unfolds to; "
        "binary tensors may come to 2 GiB",
        "no such flag and no bound",
        _CONTRACT,
        "one request cannot take all memory",
    ),
    Difference(
        ("GT-04", "GP-24", "CL-25", "CL-27"),
        "flags `--grpc-infer-thread-count` and `--grpc-max-response-pool-size`",
        "unknown flags",
        _CONTRACT,
        "command lines of newer releases start",
    ),
    Difference(
        ("M-19", "ME-13"),
        "`nv_model_load_duration_secs` for each version",
        "no such metric",
        _CONTRACT,
        "one family more disturbs no dashboard",
    ),
    Difference(
        ("E-11", "H-06"),
        "`max_inflight_requests` of an ensemble; fields are printed with their defaults",
        "the field is unknown",
        "the field is known, and printed only where it is set",
        "configurations are printed exactly as recorded",
    ),
    Difference(
        ("GP-21", "ST-06", "ME-04"),
        "a cancelled request that waits is not executed, and counts as a failure (`CANCELED`)",
        "cancelled unary requests are executed, and count as successes",
        _CONTRACT,
        "work that nobody reads is not done, and dashboards see it",
    ),
    Difference(
        ("S-12", "V-16"),
        "a correlation id of another kind than the model's CORRID control is refused",
        "the model gets the first bytes of the text's memory as a number",
        _CONTRACT,
        "a number that means nothing is of no use to a model; newer releases refuse it",
        {"grpc_infer_ok": ("seq_oldest start+end string id",)},
    ),
    Difference(
        ("N-13",),
        "a request that names an output twice is refused",
        "the output is answered once",
        _CONTRACT,
        "what such a client wants of the second is not to be guessed; newer releases refuse it",
        {"http_infer_errors": ("duplicate output",)},
    ),
    Difference(
        ("G-32",),
        "a version of zero is no version: `should be an integral value > 0`",
        "zero is looked up, and not found; negative numbers have that text",
        "the recorded",
        "clients tell by NOT_FOUND that a version is missing; newer sources test for `< 0`, too",
    ),
    Difference(
        ("T-21",),
        "deprecated flags of traces beside `--trace-config` are an error",
        "`--trace-config` wins, with a warning",
        "the recorded",
        "command lines that start today go on to start",
    ),
    Difference(
        ("MA-16",),
        "statistics have the memory in use",
        "`memory_usage` is empty for its models",
        "the recorded",
        "what a model's process uses is not its model's alone; `penstock tune` reads processes and "
        "the metrics of GPUs",
    ),
    Difference(
        ("PY-24",),
        "the text about wrong flags lists those that are allowed",
        "`Unable to send response. Unsupported flag provided.`",
        "the recorded",
        "the real text lists none",
    ),
)
"""Rows where the contract and the recording differ."""

BEYOND: tuple[Difference, ...] = (
    Difference(
        ("M-14",),
        "the reason of a failed load",
        "of a backend that is missing: the folders that were searched; of a model process that "
        "ended: that it is not healthy; of a group for GPUs where there are none: their list",
        "the backends that are installed; how the process ended; what to write, or to start with",
        "the reason says what to do",
        {
            "index_after_failed_loads": ("index", "http index"),
            "load_errors": ("load py_exit", "load gpu_instance"),
        },
    ),
    Difference(
        ("C-01", "M-03", "X-16"),
        "what is wrong with a configuration is told to who loads it",
        "the load says `failed to poll from model repository`, the reason stands in the log alone; "
        "the index tells nothing of a model that was never loaded, or that serves on",
        "the reason follows those words, and stands in the index, also beside a version that serves"
        " on after a failed reload",
        "who loads a model need not have its server's log at hand",
        {
            "load_errors": (
                "load bad_name",
                "load bad_pbtxt_enum",
                "load bad_pbtxt_field",
                "load bad_pbtxt_syntax",
                "load dyn_nobatch",
                "load dyn_pref_too_big",
                "load dyn_pref_zero",
                "load empty_dir",
                "load ens_instance_group",
                "load ens_no_sched",
                "load ens_no_steps",
                "load ens_unmapped_output",
                "load no_backend",
                "load seq_bad_control",
                "load seq_dup_control",
            ),
            "model_control": (
                "load with bad config json",
                "load files without config",
                "index versions",
                "index while slow unloads",
            ),
        },
    ),
    Difference(
        ("R-01",),
        "only directories are models",
        "`__pycache__` and hidden directories are models, too, which cannot be loaded",
        "they are none",
        "what Python and editors leave behind does not end a start",
    ),
    Difference(
        ("M-14", "C-42"),
        "what is wrong with a configuration wins over `at least one version must be available`",
        "problems of tensors, instances and backends are found only with a version",
        _CONTRACT,
        "a wrong configuration is told where it is still alone in its folder",
    ),
    Difference(
        ("M-10",),
        "the second of two operations on related models is refused",
        "the same",
        "they run one after the other",
        "nobody has to try again",
    ),
    Difference(
        ("R-19",),
        "a model in Python has a `model.py`",
        "a load without the file never ends",
        "the load fails, and names the file",
        "a load that hangs cannot be repaired by its caller",
    ),
    Difference(
        ("PY-04", "PY-10"),
        "`execute` may return None where every sender was taken",
        "a request for which it returns None without a sender waits for ever",
        "the request fails: `Expected an 'InferenceResponse' object`",
        "a client that nobody will answer is told",
        {"grpc_infer_errors": ("failer mode 8",)},
    ),
    Difference(
        ("G-20", "G-21", "H-11", "H-12"),
        "clients change the settings of traces and of the log",
        "the same",
        "they read them; changes need `--allow-trace-control=true` and `--allow-log-control=true`, "
        "or a restriction; the level TENSORS needs `--allow-trace-tensors=true`",
        "strangers cannot read others' tensors, fill the disk or hide in the log",
    ),
    Difference(
        ("G-23",),
        "no server reflection",
        "the same",
        "reflection, `v1` and `v1alpha`",
        "grpcurl and load tools work without the `.proto` files",
    ),
    Difference(
        ("H-02", "H-03", "H-04"),
        "health is a status with an empty body",
        "the same",
        "the status is the same; the body is JSON, as the Open Inference Protocol says",
        "clients of that protocol, such as KServe's, read the body; Triton's look at the status",
        {
            "http_routes": ("ready", "model ready", "query string"),
            "index_after_failed_loads": ("http live",),
        },
    ),
    Difference(
        ("H-33",),
        "TLS of the HTTP endpoint",
        "none: a proxy stands in front",
        "`--http-use-ssl` and its files",
        "two machines need no proxy to speak in private",
    ),
    Difference(
        ("CL-18", "CL-36"),
        "ports and settings of metrics",
        "ports such as 70000 and unknown settings are accepted, and mean nothing",
        "refused",
        "a mistake is seen at the start",
    ),
    Difference(
        ("RC-03",),
        "the key of a cached response holds names and bytes of inputs, not their shapes",
        "the same",
        "the key holds all that may change the answer",
        "requests never get each other's answers",
    ),
    Difference(
        ("C-04",),
        "`backend` names one of Triton's, or another",
        "a backend that is not installed fails the load",
        "the same; `dali` and backends in C++ are never installed",
        "the reason says how such a model can be served",
    ),
    Difference(
        ("OA-15",),
        "a chat without a tokenizer fails with 500, `Unknown tokenizer`",
        "no such front end",
        "messages are joined, a line for each, and usage is left out; a tokenizer without a chat "
        "template is refused with 400",
        "a model that takes text needs no tokenizer to answer",
    ),
    Difference(
        ("OA-17",),
        "`--tool-call-parser` is `llama3` or `mistral`, "
        "`--max-tool-call-parse-bytes` bounds what it reads (131072)",
        "no such front end",
        "the object `openai` of each model names its parser, `llama3_json` and `mistral` among "
        "them, which read as much; the options are refused, and say so",
        "models of one server write calls in different formats",
    ),
    Difference(
        ("OA-01", "OA-16", "OA-22", "OA-26"),
        "the front end is a program of its own around a server in its process",
        "no such front end",
        "each server has the API on its HTTP port, or on `--openai-port`; options of that program "
        "that have another name or place here are refused, and say which",
        "one process serves all clients of a model",
    ),
    Difference(
        ("OA-11", "OA-13", "OA-21", "OA-23"),
        "ids of chats begin with `cmpl-`; `n`, `logprobs` of other engines than vLLM and several "
        "prompts are refused; errors are `detail`; a wrong Content-Length is "
        "`invalid_content_length`",
        "no such front end",
        "ids of chats begin with `chatcmpl-`; what the engine can do is done; errors are an object "
        "`error`; what is no HTTP is refused in plain text",
        "as OpenAI's API and its official clients have it",
    ),
    Difference(
        ("MA-09", "MA-11", "MA-12", "MA-13"),
        "use and free memory of GPUs are figures, objectives and a table; models are measured in "
        "containers and in the tool's own process, too",
        "a tool of its own",
        "the memory that is used of GPUs is a figure; there is one table, and a page; servers are "
        "of its own, or run already",
        "`penstock tune` measures what a deployment pays for",
    ),
    Difference(
        ("TL-11",),
        "drafts, decoder prompts, prompt tables and adapters as tensors are inputs",
        "no such backend",
        "these ten are refused by name",
        "the library has nothing to give them to since its C++ backend was removed",
    ),
    Difference(
        ("TL-15",),
        "`gpt_model_type` may be `V1`",
        "no such backend",
        "refused",
        "the `LLM` of the library has batches in flight only",
    ),
    Difference(
        ("R-09", "ME-02"),
        "models of one name have namespaces",
        "the index has the name twice, statistics are an error; a namespace is the path as it was "
        "given; no request can name one",
        "the index and statistics have full names, which requests may name; a namespace is the "
        "whole path",
        "who sees two models can tell and call them",
    ),
    Difference(
        ("API-04",),
        "an in-process request has `serialize()`",
        "no such module",
        "there is none",
        "Triton's sources, as they were read, have none either",
    ),
    Difference(
        ("K-08",),
        "the startup probe of Triton's chart asks `/v2/health/ready`, 30 times every 10 s",
        "no chart was recorded",
        "`/v2/health/live`; the other two probes ask what theirs do",
        "the port answers before the models are loaded: nothing restarts a pod that loads for long",
    ),
    Difference(
        ("K-09",),
        "the rule of the adapter is a mean over models of what a wait grew by in 30 s",
        "no chart was recorded",
        "the mean wait of all requests of a minute, under the same name",
        "models that nobody asks make no pod look idle",
    ),
    Difference(
        ("R-25", "PY-36", "API-11", "ME-30"),
        "libraries in C++, a stub of one's own, the C API and its metrics",
        "the same",
        "none of them; `docs/migrating.md` says what to do instead",
        "models and front ends are in Python here",
    ),
)
"""Rows where this server differs from both."""


def known_differences() -> dict[str, dict[str, str]]:
    """Why an answer may differ from the recorded one, by file and case."""
    known: dict[str, dict[str, str]] = {}
    for difference in (*BETWEEN, *BEYOND):
        for file, cases in difference.cases.items():
            known.setdefault(file, {}).update(dict.fromkeys(cases, difference.why))
    return known
