"""Triton's own test suites that apply here, and the tests of ours that ask the same.

By row of the contract. A suite that cannot apply has a reason in place of tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Suite:
    """A folder of Triton's `qa`; `tests` are pytest's names of ours, below `tests`."""

    name: str
    tests: Sequence[str] = ()
    not_here: str = ""
    """Why it cannot apply."""


def _suite(name: str, *tests: str) -> Suite:
    return Suite(f"L0_{name}", tests)


def _not_here(name: str, reason: str) -> Suite:
    return Suite(f"L0_{name}", not_here=reason)


_EXTREMES = "conformance/test_extremes.py::"
_GOLDEN = "conformance/test_golden.py::"
_MODELS = "conformance/python_models/"
_ENDS = f"{_MODELS}faults/test_process_ends.py::"
_CPP = "it tests Triton's own C++, below any protocol"

SUITES: Mapping[str, Sequence[Suite]] = {
    "QA-01": (
        _suite(
            "http",
            f"{_GOLDEN}test_answers_are_those_of_the_real_server",
            "gateway/test_tritonclient.py::test_everything_else_that_the_client_asks",
            "gateway/inference/test_raw_request.py::test_string_input_gets_the_body_as_one_element",
        ),
        _suite(
            "http_fuzz",
            "http1/test_fuzz.py::test_hostile_bytes_do_no_harm",
            "test_fuzz_doors.py::test_nothing_escapes_but_refusals",
        ),
        _suite(
            "grpc",
            "rpc/test_tritonclient.py::test_unary_calls_are_answered",
            "rpc/test_tritonclient.py::test_asyncio_stream_sees_responses_and_flags",
            "rpc/transports/test_unary.py::test_metadata_and_deadline_reach_the_method",
        ),
        _suite(
            "grpc_state_cleanup",
            "conformance/test_cancellation.py::test_clients_that_leave_leave_nothing_behind",
            "rpc/infer_stream/test_end.py::test_cancelled_call_cancels_every_request",
            "rpc/transports/test_unary.py::test_lost_connection_cancels_the_method",
        ),
        _suite("infer", f"{_EXTREMES}test_ends_of_each_datatype_come_back"),
        _suite("infer_zero", f"{_EXTREMES}test_tensors_without_elements_come_back"),
        _suite(
            "infer_variable",
            f"{_MODELS}test_batching.py::test_requests_of_unequal_shapes_share_no_batch",
            "models/serving/test_admission.py::test_a_tensor_of_the_right_size_is_admitted",
        ),
        _suite(
            "infer_reshape",
            "models/serving/test_reshape.py::test_clients_see_dims_and_the_model_sees_the_reshape",
            "models/serving/test_configured.py::test_a_model_sees_an_input_in_the_shape_of_its"
            "_reshape",
        ),
        _suite(
            "input_validation",
            f"{_EXTREMES}test_a_shape_and_its_bytes_must_agree",
            "models/serving/test_admission.py::test_a_request_is_refused_in_the_words_of_the_real"
            "_server",
        ),
        _suite(
            "output_validation",
            "backends/tensor_models/test_tensor_model.py::test_an_output_without_the_rows_of_the"
            "_batch_is_an_error",
            "backends/tensor_models/test_tensor_model.py::test_an_engine_that_answers_with"
            "_something_else_is_told",
            "gateway/json/test_tensors.py::test_output_whose_data_does_not_fit_its_shape_is_an"
            "_error",
        ),
        _suite(
            "large_payload",
            f"{_EXTREMES}test_payloads_of_many_megabytes_come_back",
            "rpc/servicer/test_inference.py::test_inference_of_64_mib",
        ),
        _suite(
            "scalar_io",
            f"{_EXTREMES}test_one_element_is_a_tensor_of_one",
            "backends/tensor_models/test_shapes.py::test_a_scalar_is_served_as_one_element",
        ),
        _suite("string_io", f"{_EXTREMES}test_strings_may_hold_nul_and_any_byte"),
        _suite(
            "nullchar_string",
            f"{_EXTREMES}test_strings_may_hold_nul_and_any_byte",
            f"{_EXTREMES}test_nul_passes_as_json_too",
        ),
        _suite(
            "nan_inf",
            f"{_EXTREMES}test_numbers_that_are_none_keep_their_bits",
            f"{_EXTREMES}test_numbers_that_are_none_have_their_names_in_json",
        ),
        _suite(
            "io",
            f"{_MODELS}test_ensembles.py::test_large_tensors_go_through_all_steps",
            f"{_MODELS}test_tensors.py::test_large_tensor_is_changed_in_place_and_sent",
        ),
        _suite(
            "json",
            "gateway/json/test_text.py::test_garbage_is_refused_or_understood",
            "gateway/json/test_text.py::test_errors_have_an_offset",
        ),
        _not_here("query", "backends in C++ are asked where they want their buffers"),
        _suite(
            "data_compression",
            "gateway/test_tritonclient.py::test_bodies_may_be_compressed_both_ways",
            "gateway/test_decompression.py::test_corrupt_data_counts_as_empty",
        ),
        _suite(
            "parameters",
            f"{_MODELS}test_answers.py::test_parameters_of_a_response_reach_the_client",
            "gateway/test_forward.py::test_headers_that_match_become_parameters_under_their_own"
            "_names",
            "rpc/test_parameters.py::test_all_others_go_to_the_model_with_their_types",
        ),
        _suite(
            "socket",
            "gateway/connections/test_listener.py::test_port_can_be_shared",
            "gateway/connections/test_listener.py::test_addresses_may_be_ipv6",
            "conformance/test_faults.py::test_a_port_in_use_ends_the_start_with_a_clear_line",
        ),
        _suite(
            "https",
            "gateway/connections/test_tls_and_socket_files.py::test_tensors_of_any_size_pass_over"
            "_tls",
            "gateway/connections/test_tls_and_socket_files.py::test_clients_without_a_certificate"
            "_are_refused",
        ),
        _suite(
            "secure_grpc",
            "rpc/transports/test_server.py::test_encrypted_endpoint_serves_clients_that_trust_it",
            "rpc/transports/test_server.py::test_mutual_tls_asks_clients_for_a_certificate",
        ),
    ),
    "QA-02": (
        _suite(
            "lifecycle",
            f"{_GOLDEN}test_models_come_and_go_as_in_the_real_server",
            "models/loading/lifecycle/test_reloading.py::test_no_request_is_lost_while_a_model_is"
            "_loaded_anew",
            "conformance/test_polling.py::test_models_follow_their_files",
            "conformance/test_faults.py::test_without_exit_on_error_the_others_serve",
        ),
        _suite(
            "model_update",
            "models/loading/test_resizing.py::test_fewer_instances_finish_what_they_have",
            "models/loading/lifecycle/test_unchanged.py::test_nothing_is_started_and_counters_go"
            "_on",
        ),
        _suite(
            "model_config",
            f"{_GOLDEN}test_loads_fail_as_those_of_the_real_server",
            "models/config/validation/test_recorded.py::test_reason_is_the_recorded_one",
        ),
        _suite(
            "custom_model_config",
            "models/repository/test_configurations.py::test_config_can_be_chosen_by_name",
        ),
        _suite(
            "config_json",
            "models/config/test_override.py::test_override_is_parsed_from_json",
            "models/config/test_override.py::test_overrides_are_read_in_the_forms_that_triton"
            "_reads",
        ),
        _suite(
            "model_namespacing",
            "conformance/test_namespaces.py::test_an_ensemble_finds_the_model_of_its_own"
            "_repository",
            "conformance/test_namespaces.py::test_a_name_of_two_models_is_refused_on_its_own",
        ),
        _suite(
            "register",
            "in_process/test_server.py::test_repositories_come_and_go",
            "in_process/test_server.py::test_models_of_a_repository_may_have_other_names",
        ),
        _suite(
            "server_status",
            "server/test_views.py::test_the_index_lists_every_version_with_its_state_and_reason",
            "server/test_views.py::test_statistics_are_refused_in_the_words_of_the_real_server",
        ),
        _suite(
            "multi_server",
            "in_process/test_server.py::test_two_servers_of_one_process_have_models_of_their_own",
        ),
        _suite(
            "initializer_as_input",
            "backends/onnxruntime/test_initializers.py::test_a_completed_configuration_leaves"
            "_them_out",
            "backends/onnxruntime/test_initializers.py::test_where_they_are_declared_a_client_may"
            "_send_them",
        ),
    ),
    "QA-03": (
        _suite(
            "batcher",
            "scheduling/batching/batcher/test_batching.py::test_requests_that_come_while_the"
            "_instance_is_busy_are_batched",
            f"{_MODELS}test_batching.py::test_a_request_beyond_the_preferred_size_does_not_wait",
            f"{_MODELS}test_batching.py::test_order_is_kept_over_two_instances",
        ),
        _suite(
            "model_queue",
            f"{_MODELS}test_batching.py::test_a_full_queue_refuses_over_both_protocols",
            f"{_MODELS}test_batching.py::test_a_late_request_is_answered_where_it_is_only_delayed",
        ),
        _suite(
            "priority",
            f"{_MODELS}test_batching.py::test_urgent_requests_are_first_and_their_level_has_its"
            "_own_bound",
        ),
        _suite(
            "rate_limiter",
            f"{_MODELS}test_rate_limiter.py::test_models_that_wait_take_turns_by_their_priorities",
            "scheduling/test_rate_limiter.py::test_a_large_need_is_not_passed_for_ever_by_small"
            "_ones",
        ),
        _suite(
            "passive_instance",
            "models/loading/build_version/test_instances.py::test_a_passive_instance_is_loaded"
            "_and_gets_no_requests",
        ),
        _suite(
            "batch_input",
            "backends/tensor_models/test_batch_inputs.py::test_the_values_of_each_kind",
            "backends/tensor_models/test_served.py::test_a_batch_input_bounds_requests_and_a"
            "_batch_output_is_split",
        ),
        _suite(
            "batch_custom",
            f"{_MODELS}test_batching.py::test_requests_share_a_batch_by_length_and_as_their"
            "_elements_allow",
        ),
        _suite(
            "optional_input",
            f"{_MODELS}test_answers.py::test_optional_input_may_be_missing",
            "scheduling/batching/test_compatibility.py::test_requests_with_other_optional_inputs"
            "_are_not_batched",
        ),
        _suite(
            "warmup",
            "models/loading/build_version/test_models.py::test_every_instance_is_warmed_up_before"
            "_the_model_is_ready",
            "models/loading/build_version/test_models.py::test_a_failed_warm_up_fails_the_load",
            "models/loading/warmup/test_run.py::test_a_sample_runs_as_one_batch_as_often_as_it"
            "_says",
        ),
        _not_here("async_work_queue", _CPP),
    ),
    "QA-04": (
        _suite(
            "sequence_batcher",
            f"{_MODELS}sequences/test_requests.py::test_a_model_has_a_state_for_each_sequence",
            f"{_MODELS}sequences/test_requests.py::test_rows_of_a_batch_are_the_slots",
            "scheduling/sequences/test_strategies.py::test_direct_waits_for_enough_slots_or_the"
            "_delay",
            "scheduling/sequences/test_leaving.py::test_the_slot_of_an_idle_sequence_goes_to_the"
            "_backlog",
        ),
        _suite(
            "sequence_corrid_batcher",
            f"{_MODELS}sequences/test_requests.py::test_a_model_may_take_ids_as_texts",
            "scheduling/sequences/test_controls.py::test_an_id_is_cut_to_the_size_of_its_datatype",
        ),
        _suite(
            "sequence_stress",
            f"{_MODELS}sequences/test_many.py::test_a_thousand_interleaved_sequences_see_their"
            "_own_states",
            "scheduling/sequences/test_properties.py::test_every_request_ends_and_each_sequence"
            "_sees_its_own_in_order",
        ),
        _suite(
            "dyna_sequence_batcher",
            "scheduling/sequences/test_strategies.py::test_oldest_waits_for_a_preferred_size_or"
            "_the_delay",
            "scheduling/sequences/test_strategies.py::test_oldest_has_as_many_sequences_as"
            "_candidates",
        ),
        _suite(
            "implicit_state",
            f"{_MODELS}sequences/test_states.py::test_the_server_keeps_the_state_of_a_sequence",
            "scheduling/sequences/test_implicit_state.py::test_a_start_takes_the_first_state_again",
        ),
        _suite(
            "dyna_implicit_state",
            "scheduling/sequences/test_implicit_state.py::test_states_of_different_lengths_do_not"
            "_share_a_batch",
        ),
        _suite(
            "iterative_sequence",
            f"{_MODELS}sequences/test_iterative.py::test_a_request_comes_again_until_the_model_has"
            "_done_with_it",
            f"{_MODELS}sequences/test_iterative.py::test_an_iterative_sequence_with_an_id_ends"
            "_with_its_request",
        ),
    ),
    "QA-05": (
        _suite(
            "simple_ensemble",
            f"{_MODELS}test_ensembles.py::test_steps_follow_each_other",
            f"{_MODELS}test_ensembles.py::test_an_ensemble_gives_the_outputs_asked_for",
        ),
        _suite(
            "decoupled",
            f"{_MODELS}test_streams.py::test_repeat_answers_in_order_and_flags_the_last",
            f"{_MODELS}test_streams.py::test_500_responses_arrive_in_order",
            "rpc/infer_stream/test_order.py::test_empty_final_response_is_sent_only_on_request",
        ),
        _not_here("backend_output_detail", "backends in C++ look at the outputs that they made"),
        _suite(
            "response_statistics",
            "conformance/test_statistics.py::test_decoupled_request_is_one_inference_of_many"
            "_responses",
            "gateway/test_models.py::test_responses_are_counted_by_their_index",
        ),
        _suite(
            "request_cancellation",
            f"{_MODELS}test_streams.py::test_model_learns_that_its_client_has_left",
            "conformance/test_statistics.py::test_cancelled_requests_are_failures",
            f"{_MODELS}test_ensembles.py::test_a_client_that_leaves_cancels_the_step_that_runs",
        ),
    ),
    "QA-06": (
        _suite(
            "metrics",
            "telemetry/test_metrics.py::test_counters_have_the_counted_values",
            "telemetry/test_metrics.py::test_every_reason_for_failure_is_there_from_the_start",
            "cli/test_metrics_options.py::test_without_metrics_nobody_listens",
        ),
        _suite(
            "trace",
            "tracing/served/test_trace_files.py::test_every_nth_request_has_a_file",
            "tracing/served/test_trace_files.py::test_settings_over_http",
            "tracing/served/test_opentelemetry.py::test_attributes_and_events_are_tritons",
        ),
        _suite(
            "cmdline_trace",
            "cli/test_tracing.py::test_trace_config_wins_over_its_deprecated_forms",
            "cli/test_tracing.py::test_levels_add_up_and_other_settings_keep_their_last_value",
        ),
        _suite(
            "logging",
            "telemetry/test_logging.py::test_the_default_format",
            "telemetry/test_logging.py::test_a_message_cannot_forge_a_line",
            f"{_GOLDEN}test_settings_are_kept_as_in_the_real_server",
        ),
        _suite(
            "orca",
            f"{_MODELS}test_control.py::test_replies_report_the_kv_cache_of_a_models_own_metrics",
            "gateway/test_load_header.py::test_a_reply_has_the_report_that_was_asked_for",
        ),
    ),
    "QA-08": (
        _suite("storage_S3", "app/test_object_stores.py::test_a_repository_of_a_cloud_is_served"),
        _suite(
            "storage_S3_local",
            "app/test_object_stores.py::test_a_repository_of_a_cloud_is_served",
            "models/remote/test_bucket_repository.py::test_variables_name_the_folder_of_local"
            "_copies",
        ),
        _suite(
            "storage_azure", "app/test_object_stores.py::test_a_repository_of_a_cloud_is_served"
        ),
        _suite(
            "storage_swiftstack",
            "models/remote/test_address.py::test_forms_of_addresses",
        ),
    ),
    "QA-10": (
        _suite(
            "backend_python/argument_validation",
            "backends/python/pb_utils/test_arguments.py::test_what_is_no_text_is_refused",
            "backends/python/pb_utils/test_tensor.py::test_only_arrays_make_a_tensor",
        ),
        _suite(
            "backend_python/async_execute",
            f"{_MODELS}test_streams.py::test_executions_of_a_coroutine_overlap",
        ),
        _suite(
            "backend_python/bls",
            f"{_MODELS}bls/test_calls.py::test_model_answers_with_the_answer_of_another",
            f"{_MODELS}bls/test_calls.py::test_several_calls_are_in_flight_at_once",
        ),
        _suite(
            "backend_python/custom_metrics",
            f"{_MODELS}test_control.py::test_metrics_of_a_model_live_as_long_as_it_does",
        ),
        _suite(
            "backend_python/decoupled",
            f"{_MODELS}test_streams.py::test_square_answers_from_threads_after_execute_has"
            "_returned",
        ),
        _suite(
            "backend_python/ensemble",
            f"{_MODELS}test_ensembles.py::test_a_model_may_call_an_ensemble",
        ),
        _suite(
            "backend_python/env",
            f"{_MODELS}test_environments.py::test_packed_environment_is_unpacked_once",
            f"{_MODELS}test_environments.py::test_environment_may_be_a_directory",
        ),
        _suite(
            "backend_python/examples",
            f"{_MODELS}test_answers.py::test_add_sub_adds_and_subtracts",
            f"{_MODELS}test_answers.py::test_auto_complete_makes_a_configuration_where_there_is"
            "_none",
            f"{_MODELS}test_answers.py::test_preprocessing_unpacks_a_batch_of_images",
        ),
        _suite(
            "backend_python/io",
            f"{_MODELS}test_tensors.py::test_every_datatype_comes_back_as_it_was",
            f"{_MODELS}test_tensors.py::test_dlpack_shares_the_memory_of_a_tensor",
        ),
        _suite(
            "backend_python/lifecycle",
            f"{_MODELS}test_control.py::test_finalize_is_called_and_may_fail",
            f"{_MODELS}test_control.py::test_what_goes_wrong_at_load_is_told",
        ),
        _suite(
            "backend_python/logging",
            f"{_MODELS}test_surroundings.py::test_log_of_the_model_goes_to_the_servers",
        ),
        _suite(
            "backend_python/model_control",
            f"{_MODELS}test_control.py::test_model_loads_and_unloads_another",
        ),
        _suite(
            "backend_python/model_readiness",
            f"{_MODELS}test_readiness.py::test_model_says_itself_whether_it_is_ready",
        ),
        _suite(
            "backend_python/parameters",
            f"{_MODELS}test_answers.py::test_parameters_of_a_response_reach_the_client",
        ),
        _suite(
            "backend_python/python_based_backends",
            f"{_MODELS}test_python_based_backends.py::test_models_with_data_only_share_the_code",
        ),
        _suite(
            "backend_python/request_rescheduling",
            f"{_MODELS}sequences/test_iterative.py::test_a_request_comes_again_until_the_model_has"
            "_done_with_it",
        ),
        _suite(
            "backend_python/response_sender",
            f"{_MODELS}test_senders.py::test_model_may_answer_before_it_returns_nothing",
            f"{_MODELS}test_senders.py::test_request_that_is_forgotten_fails",
        ),
        _suite(
            "backend_python/restart",
            f"{_ENDS}test_model_that_ends_fails_its_request_and_comes_back",
            f"{_ENDS}test_idle_process_that_is_killed_comes_back",
        ),
        _suite(
            "backend_python/variants",
            "backends/python/environment/test_interpreter.py::test_python_with_numpy_will_do",
        ),
        _not_here("backend_bls", "a backend in C++ calls models"),
        _suite(
            "python_api",
            "in_process/test_frontend.py::test_scripts_for_tritons_packages_run",
            "in_process/test_infer.py::test_a_model_answers",
            "in_process/test_server.py::test_models_are_loaded_and_unloaded",
        ),
        _not_here("python_client_unit_tests", "Triton's clients are used as they are"),
    ),
    "QA-11": (
        _suite(
            "openai",
            "demo/test_openai_served.py::test_chat_whole_and_streamed_say_the_same",
            "demo/test_openai_served.py::test_errors_are_those_of_the_client",
            "backends/openai_kit/test_tool_calls.py::test_streamed_calls_are_those_of_the_whole_answer",
        ),
        _suite(
            "simple_example",
            "clients/test_example_models.py::test_vectors_are_added_and_subtracted",
        ),
        _suite(
            "simple_go_client",
            "clients/test_language_clients.py::test_a_client_shows_every_feature",
        ),
        _suite(
            "simple_nodejs_client",
            "clients/test_language_clients.py::test_a_client_shows_every_feature",
        ),
        _suite(
            "client_timeout",
            "rpc/servicer/test_inference.py::test_deadline_cancels_its_request",
            "gateway/test_deadline.py::test_request_that_takes_longer_than_its_client_waits_is_cancelled",
        ),
        _not_here("client_memory_growth", "Triton's clients are used as they are"),
        _not_here("sdk", "there is no image with Triton's tools"),
        _suite(
            "sagemaker",
            "gateway/clouds/test_sagemaker.py::test_models_come_answer_and_go",
            "gateway/clouds/test_sagemaker.py::test_ping_is_health",
        ),
        _suite(
            "vertex_ai",
            "gateway/clouds/test_vertex.py::test_header_names_another_call",
            "gateway/clouds/test_vertex.py::test_predictions_are_those_of_the_only_model",
        ),
        _suite(
            "mlflow",
            "deployment/test_mlflow.py::test_a_model_is_deployed_asked_changed_and_removed",
        ),
    ),
    "QA-12": (
        _suite(
            "onnx_optimization",
            "backends/onnxruntime/test_settings.py::test_every_parameter_has_its_place",
            "backends/onnxruntime/test_providers.py::test_tensorrt_takes_the_parameters_that"
            "_triton_documents",
        ),
        _suite(
            "libtorch_*",
            "backends/pytorch/real/test_backend.py::test_tensors_are_found_by_name_index_order_or"
            "_place",
            "backends/pytorch/real/test_backend.py::test_weights_that_instances_share_lie_in_the"
            "_file",
            "backends/pytorch/real/test_backend.py::test_switches_are_those_of_the_process",
            "backends/pytorch/real/test_backend.py::test_model_that_chooses_its_devices_is_not"
            "_moved",
        ),
        _suite(
            "torch_aoti",
            "backends/pytorch/real/test_backend.py::test_a_package_with_a_dynamic_first_dimension"
            "_runs_once_for_a_batch",
        ),
        _suite(
            "trt_*",
            "backends/tensorrt/test_served.py::test_a_plan_needs_no_configuration",
            "backends/tensorrt/test_served.py::test_profiles_bound_what_clients_may_send",
            "backends/tensorrt/test_served.py::test_shape_tensors_are_sent_once",
            "backends/tensorrt/test_backend.py::test_formats_that_are_not_linear_are_passed_as"
            "_they_are",
            "backends/tensorrt/test_placement.py::test_a_plan_may_run_on_a_dla_core",
        ),
        _suite(
            "backend_onnxruntime",
            "backends/onnxruntime/test_sessions.py::test_instances_on_a_cpu_share_a_session",
            "backends/onnxruntime/test_settings.py::test_parameters_go_before_server_settings",
        ),
        _suite(
            "backend_identity",
            "backends/identity/test_backend.py::test_the_nth_input_is_the_nth_output_itself",
        ),
        _suite(
            "custom_ops",
            "backends/test_custom_operations.py::test_the_libraries_of_a_model_are_registered",
        ),
    ),
    "QA-13": (
        _suite(
            "memory_growth",
            "conformance/test_load_tools.py::test_soak_with_clients_that_leave_or_read_slowly"
            "_leaves_nothing",
            f"{_MODELS}test_tensors.py::test_shared_memory_does_not_grow_with_the_requests",
        ),
        _not_here("memory", _CPP),
        _suite(
            "long_running_stress",
            "conformance/test_load_tools.py::test_soak_with_clients_that_leave_or_read_slowly"
            "_leaves_nothing",
            "conformance/test_cancellation.py::test_clients_that_leave_leave_nothing_behind",
        ),
        _suite(
            "device_memory_tracker",
            "models/residency/test_measured.py::test_gpus_tell_their_processes",
            "models/residency/test_measured.py::test_processes_and_their_children_are_measured",
        ),
    ),
}
