"""Writes docs/reference/public-faults.md: what was reported of other servers, and what holds here.

    PYTHONPATH=tests .venv/bin/python -m security.public_faults

A row is a fault that became public from 2023 on and that this server could have too, with the test
that fails without the guard. Rows without an id of a database are pull requests and issues of the
project on GitHub.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "public-faults.md"

TRITON, VLLM, KSERVE, HTTP = "Triton", "vLLM's server", "KServe", "HTTP"


@dataclass(frozen=True, slots=True)
class Fault:
    """`tests` are pytest's names of them, below `tests`; each holds the guard by itself."""

    of: str
    ids: str
    was: str
    guard: str
    tests: tuple[str, ...]


_DOOR = "security/test_at_the_door.py::"
_BAD = "demo/test_openai_bad_input.py::test_a_bad_request_is_refused_and_others_are_served"

FAULTS: Sequence[Fault] = (
    # -- Triton ----------------------------------------------------------------------------------
    Fault(
        TRITON,
        "CVE-2026-24208, CVE-2026-24209, server#8400",
        "names of models in load requests lead out of the repository",
        "a name is that of a folder directly inside a repository",
        (f"{_DOOR}test_names_of_models_lead_nowhere",),
    ),
    Fault(
        TRITON,
        "core#500",
        "steps of an ensemble name models outside of the repository, and the answer tells what "
        "is there",
        "steps are found by the same names; what lies outside is asked for by nobody",
        (f"{_DOOR}test_steps_of_an_ensemble_lead_nowhere",),
    ),
    Fault(
        TRITON,
        "CVE-2023-31036",
        "files of a load request are written wherever their names lead",
        "no file leaves the folder of its load; strangers bring none",
        (
            f"{_DOOR}test_files_of_a_load_stay_in_their_folder",
            "gateway/test_repository.py::test_files_of_strangers_are_refused_with_what_would_allow"
            "_them",
        ),
    ),
    Fault(
        TRITON,
        "CVE-2025-23316",
        "the name of a model becomes a part of a shell's command line",
        "model processes are started without a shell",
        (f"{_DOOR}test_a_name_is_no_command",),
    ),
    Fault(
        TRITON,
        "CVE-2024-0087, CVE-2024-0100",
        "clients choose the file of the log, and that of the trace",
        "neither can be set over the network",
        (
            "gateway/test_settings.py::test_fixed_settings_are_refused",
            "rpc/test_settings.py::test_log_settings_that_cannot_be_are_refused",
        ),
    ),
    Fault(
        TRITON,
        "CVE-2024-0095",
        "forged lines in the log",
        "a record is one line: what would end it is escaped",
        (f"{_DOOR}test_no_line_of_the_log_is_forged",),
    ),
    Fault(
        TRITON,
        "CVE-2025-23319, CVE-2025-23320, CVE-2025-23334, server#8273, server#8336, "
        "python_backend#403",
        "shared memory of the server's own processes has names: errors tell them, and clients "
        "register it",
        "memory between the server and its models has no name; names that programs keep to "
        "themselves are refused",
        (
            f"{_DOOR}test_memory_of_the_server_has_no_name",
            f"{_DOOR}test_keys_of_others_are_refused",
        ),
    ),
    Fault(
        TRITON,
        "CVE-2024-0088, server#7093",
        "offsets and sizes beyond a region of shared memory",
        "a region lies inside its object, a tensor inside its region, whatever is added up",
        (f"{_DOOR}test_what_lies_outside_of_a_region_is_refused",),
    ),
    Fault(
        TRITON,
        "server#7567",
        "a region is unregistered while a request reads it",
        "it stays until the last request that uses it has ended",
        (
            "conformance/test_shared_memory.py::test_memory_is_unregistered_after_the_request_that"
            "_uses_it",
        ),
    ),
    Fault(
        TRITON,
        "server#8936",
        "requests that name shared memory where there is none",
        "they are refused like any region that nobody registered",
        (f"{_DOOR}test_memory_that_nobody_registered_is_refused",),
    ),
    Fault(
        TRITON,
        "python_backend#406",
        "sizes that somebody else wrote into memory shared with a model process are believed",
        "what a model process sends is checked; one that breaks the protocol is ended",
        (
            "hosting/parent/process/test_protocol.py::test_process_that_breaks_the_protocol_is_"
            "restarted_and_others_go_on",
        ),
    ),
    Fault(
        TRITON,
        "CVE-2025-23310, CVE-2025-23311, server#8314",
        "each of many small chunks of a body takes room on the stack",
        "chunks are counted, and a body lies in one piece of memory",
        (
            "http1/test_hostile.py::test_too_many_chunks_are_refused_with_what_to_do",
            "http1/test_limits.py::test_chunks_of_a_body_are_counted",
        ),
    ),
    Fault(
        TRITON,
        "server#8172, common#156",
        "JSON that is nested without end overflows the stack",
        "100 levels, counted before anything is decoded",
        (f"{_DOOR}test_deep_json_is_refused",),
    ),
    Fault(
        TRITON,
        "CVE-2025-33201",
        "a payload that is far too large",
        "bodies and messages are bounded, each and together, before they come",
        (
            "gateway/limits/test_size_limits.py::test_body_of_more_than_2_gib_is_refused_before_it"
            "_comes",
            "rpc/native/test_bounds.py::test_message_larger_than_allowed_ends_its_method",
        ),
    ),
    Fault(
        TRITON,
        "server#8570",
        "compressed bodies that unfold a thousandfold",
        "64 MiB, or 64 times what was sent, on both protocols",
        (
            "http1/test_hostile.py::test_body_that_unfolds_a_thousandfold_is_refused",
            "rpc/transports/test_compressed.py::test_message_that_unpacks_to_too_much_is_refused",
        ),
    ),
    Fault(
        TRITON,
        "CVE-2026-24146",
        "a request asks for a great many outputs",
        "4,096 of inputs, outputs and parameters, counted before they are read",
        (f"{_DOOR}test_many_outputs_are_refused",),
    ),
    Fault(
        TRITON,
        "CVE-2026-24173, common#151",
        "shapes whose product overflows, or that are negative",
        "sizes are whole numbers without a bound, compared with the bytes that came",
        (f"{_DOOR}test_shapes_that_cannot_be_are_refused",),
    ),
    Fault(
        TRITON,
        "server#5664",
        "a long string ends the server: lengths of the elements of a BYTES tensor are believed",
        "they are added up and must end where the data does",
        (f"{_DOOR}test_lengths_of_elements_that_cannot_be_are_refused",),
    ),
    Fault(
        TRITON,
        "CVE-2026-24206, CVE-2026-24207, server#8686, server#8833",
        "calls that are restricted on one port are free on another",
        "one table of groups is asked on every port, and a route without a group fails the tests",
        (
            "access/test_table.py::test_every_route_lets_in_its_group_and_no_other",
            "access/test_table.py::test_every_rpc_lets_in_its_group_and_no_other",
            "gateway/clouds/test_sagemaker.py::test_restricted_groups_want_their_header_here_too",
        ),
    ),
    Fault(
        TRITON,
        "server#6576, server#8034",
        "a client that leaves in the middle of a stream, or cancels, takes the server with it",
        "its request ends, and nothing of it is left",
        (
            "gateway/inference/test_generate.py::test_reader_that_leaves_ends_the_request",
            "conformance/test_cancellation.py::test_clients_that_leave_leave_nothing_behind",
        ),
    ),
    # -- vLLM ------------------------------------------------------------------------------------
    Fault(
        VLLM,
        "CVE-2024-8768",
        "an empty prompt ends the engine",
        "a prompt has at least a token",
        (
            "backends/openvino_genai/test_refusals.py::test_a_rejected_request_gets_the_reason",
            "backends/openai_kit/test_completions.py::test_what_a_completion_cannot_keep_is"
            "_refused",
        ),
    ),
    Fault(
        VLLM,
        "CVE-2024-8939, CVE-2026-34756",
        "`n` and `best_of` without a bound",
        "both are bounded before anything is copied",
        (
            f"{_BAD}[a million answers]",
            "backends/openai_kit/test_completions.py::test_what_a_completion_cannot_keep_is"
            "_refused",
        ),
    ),
    Fault(
        VLLM,
        "vllm#51447, vllm#44968",
        "stop strings without number, ids of tokens that the vocabulary has not",
        "lists are short, and each of their items is looked at before the engine",
        (
            f"{_BAD}[100,000 stops that are no texts]",
            "backends/openvino_genai/test_sampling.py::test_a_value_out_of_range_is_refused_by_name",
        ),
    ),
    Fault(
        VLLM,
        "CVE-2026-54235",
        "numbers that are none reach the engine",
        "JSON has no `NaN` and no number beyond a double",
        (f"{_BAD}[not a number]", f"{_BAD}[infinity]"),
    ),
    Fault(
        VLLM,
        "CVE-2025-48942, CVE-2025-48943, CVE-2025-48944, vllm#45346",
        "schemas, regular expressions and tools that end the engine",
        "what the engine might break on is refused before it",
        (
            "backends/openvino_genai/test_structure.py::test_what_the_engine_might_break_on_is"
            "_refused",
            f"{_BAD}[schema that refers to itself]",
        ),
    ),
    Fault(
        VLLM,
        "CVE-2025-29770, CVE-2025-48887",
        "grammars and parsers of calls that take minutes, or fill a disk",
        "constraints are measured before they are compiled, parsers go through a text once and "
        "stop at 131,072 characters",
        (
            "backends/language_model/constraints/test_constraints.py::test_what_would_take_minutes"
            "_is_refused",
            "backends/openai_kit/test_tool_calls.py::test_calls_of_131072_characters_are_read_and"
            "_longer_ones_are_content",
            f"{_BAD}[nested repetitions]",
        ),
    ),
    Fault(
        VLLM,
        "CVE-2025-9141",
        "arguments that a model makes up for a tool are evaluated",
        "they are JSON, or text",
        ("backends/openai_kit/test_tool_calls.py::test_what_cannot_be_parsed_is_content",),
    ),
    Fault(
        VLLM,
        "CVE-2025-61620, CVE-2025-62426",
        "requests bring chat templates, or reach what renders them",
        "templates of requests are not trusted; those of models run in a sandbox with a bound",
        (
            f"{_BAD}[template]",
            "backends/openai_kit/test_bad_input.py::test_a_template_that_fails_is_an_error_of_the"
            "_request",
            "backends/openai_kit/test_bad_input.py::test_what_a_template_may_not_see_is_nothing",
        ),
    ),
    Fault(
        VLLM,
        "CVE-2025-46560",
        "long prompts are read in quadratic time",
        "characters are counted before they are tokens",
        (
            f"{_BAD}[text of 8 MB to tokenize]",
            "backends/language_model/test_prompt_size.py::test_a_prompt_that_is_far_too_long_is"
            "_counted_no_further_than_needed",
        ),
    ),
    Fault(
        VLLM,
        "CVE-2025-6242, CVE-2026-24779, vllm#26035",
        "URLs of media lead to addresses inside: directly, by a redirection, or since two parsers "
        "disagree on the host",
        "off by default; the address that was checked is the one that is connected to, after each "
        "redirection",
        (
            f"{_BAD}[link-local image]",
            "backends/language_model/media/test_fetching.py::test_addresses_that_are_not_public"
            "_are_refused",
            "backends/language_model/media/test_fetching.py::test_what_a_server_answers_is_bounded",
            "backends/language_model/media/test_fetching.py::test_no_url_hides_its_host",
        ),
    ),
    Fault(
        VLLM,
        "CVE-2026-34755, CVE-2026-54233, vllm#47010",
        "images, frames and sounds that unfold to gigabytes",
        "pixels are counted from the head of a file, six formats are known, and decoding has its "
        "time",
        (
            "backends/tensor_models/test_images.py::test_bombs_are_refused_before_they_are_decoded",
            "backends/language_model/media/test_image_decoding.py::test_decoding_ends_when_its"
            "_time_is_over",
        ),
    ),
    Fault(
        VLLM,
        "CVE-2026-22778, CVE-2026-73555",
        "errors tell addresses in memory, and paths and users of the machine",
        "errors are in our words",
        (
            "backends/language_model/media/test_image_decoding.py::test_no_refusal_tells_an"
            "_address",
            f"{_DOOR}test_refusals_tell_nothing_of_the_machine",
        ),
    ),
    Fault(
        VLLM,
        "CVE-2025-62164, GHSA-mcmc-2m55-j8jj",
        "tensors in requests are unpickled",
        "bytes of clients stay bytes; fields that hold tensors are not known",
        (
            f"{_DOOR}test_pickles_stay_bytes",
            "backends/openai_kit/test_bad_input.py::test_a_wrong_field_is_named_at_once",
        ),
    ),
    Fault(
        VLLM,
        "CVE-2024-9052, CVE-2024-9053, CVE-2025-32444, CVE-2025-47277",
        "processes unpickle what comes over a socket",
        "model processes and the server speak plain values, over sockets without an address",
        (
            "hosting/link/test_plain_values.py::test_what_is_not_plain_is_refused",
            "hosting/fuzzing/test_fuzzing.py::test_who_breaks_the_protocol_is_killed",
        ),
    ),
    Fault(
        VLLM,
        "CVE-2025-24357, GHSA-ggpf-24jw-3fcw, kserve#5644",
        "files of models are unpickled",
        "pickles are refused unless the operator trusts them",
        ("backends/fil/test_backend.py::test_a_pickle_is_refused_and_not_run",),
    ),
    Fault(
        VLLM,
        "CVE-2025-48956",
        "headers without a bound",
        "64 KiB and 100 fields, counted as they come",
        (
            "gateway/connections/test_hostile_clients.py::test_head_has_64_kib_and_100_fields",
            "rpc/native/test_bounds.py::test_metadata_larger_than_allowed_is_refused_for_that_call"
            "_only",
        ),
    ),
    Fault(
        VLLM,
        "CVE-2025-59425",
        "the time that a comparison takes tells a key letter by letter",
        "secrets are compared as a whole, keys are looked up by their hash",
        ("settings/test_restriction.py::test_the_comparison_takes_the_same_time",),
    ),
    Fault(
        VLLM,
        "CVE-2026-48746",
        "a `Host` that holds a path is taken for the path that is asked for",
        "the target of the request alone says what is asked for",
        (f"{_DOOR}test_no_host_opens_a_route",),
    ),
    # -- KServe ----------------------------------------------------------------------------------
    Fault(
        KSERVE,
        "kserve#4612, kserve#4975",
        "members of an archive are written outside of its folder",
        "no member leaves it, links included",
        (
            "system/test_tar_archive.py::test_archive_does_not_reach_out_of_its_directory",
            "system/test_tar_archive.py::test_nothing_is_written_outside_whatever_the_archive"
            "_holds",
        ),
    ),
    Fault(
        KSERVE,
        "kserve#2494",
        "archives that unfold without end",
        "bytes and members have limits, also behind the end of the archive",
        (
            "system/test_tar_archive.py::test_a_bomb_is_refused_before_it_is_unpacked",
            "system/test_archives.py::test_a_bomb_is_refused_by_what_it_claims",
        ),
    ),
    Fault(
        KSERVE,
        "kserve#5714",
        "keys of object stores are taken for paths",
        "a key that is no path harms its model alone",
        (
            "models/remote/test_bucket_repository.py::test_a_key_that_is_no_path_harms_its_model"
            "_alone",
        ),
    ),
    Fault(
        KSERVE,
        "kserve#5715",
        "the URL of a model in a request leads anywhere",
        "SageMaker's loads take folders below one root",
        (
            "gateway/clouds/test_sagemaker.py::test_models_lie_below_the_folder_of_the_service",
            "gateway/clouds/test_sagemaker.py::test_detours_to_a_model_are_refused",
            "gateway/clouds/test_sagemaker.py::test_a_targets_name_reaches_no_other_route",
        ),
    ),
    Fault(
        KSERVE,
        "kserve#5340",
        "who describes a model sets the variables that its interpreter obeys",
        "configurations of strangers name no environments, libraries or paths",
        ("server/test_control.py::test_configurations_of_strangers_name_no_code",),
    ),
    # -- what all of them stand on ---------------------------------------------------------------
    Fault(
        HTTP,
        "CVE-2025-43859",
        "requests that two servers cut differently",
        "what has two readings is refused, and nothing behind it is answered",
        ("http1/test_hostile.py::test_fault_is_refused_and_nothing_behind_it_is_answered",),
    ),
    Fault(
        HTTP,
        "CVE-2023-44487",
        "streams of HTTP/2 opened and reset without end",
        "resets are counted",
        ("http2/test_hostile.py::test_rapid_reset_is_stopped",),
    ),
    Fault(
        HTTP,
        "VU#421644",
        "header blocks of HTTP/2 without an end",
        "they are bounded, in frames and bytes",
        (
            "http2/test_hostile.py::test_flood_of_continuations_is_stopped",
            "http2/test_hostile.py::test_header_block_without_an_end_is_stopped",
        ),
    ),
)

_HEAD = """\
# Public faults of other servers

What was reported of Triton, vLLM's server, KServe and what they stand on from 2023 on, as far as
this server could have it too, and the test that fails without what holds here. `server#1` is an
issue or a pull request of the project on GitHub. Written by `tests/security/public_faults.py`,
whose tests hold that each test is there and is collected.

Left out: overflows of memory in C++ and CUDA where there is no such code here (CVE-2024-53880, the
DALI backend's CVE-2026-24214 and CVE-2026-24215), and what vLLM does itself where it is the
engine: its processes among each other, code of models (`auto_map`), hashes of prefixes. What is
not defended at all stands in [security](../security.md#what-is-not-defended).
"""


def page() -> str:
    """The whole page."""
    sections = [_HEAD]
    for of in (TRITON, VLLM, KSERVE, HTTP):
        rows = [_row(fault) for fault in FAULTS if fault.of == of]
        head = "| reported as | what it was | what holds here | test |\n|---|---|---|---|"
        sections.append("\n".join((f"## {of}\n", head, *rows)))
    return "\n\n".join(section.rstrip("\n") for section in sections) + "\n"


def _row(fault: Fault) -> str:
    tests = ", ".join(f"`{name}`" for name in fault.tests)
    return f"| {fault.ids} | {fault.was} | {fault.guard} | {tests} |"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
