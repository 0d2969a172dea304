"""What a session does with each option and method of ONNX Runtime's session. PURE.

``python -m opatlas.session.surface`` writes ``docs/onnxruntime.md`` from this table; a test holds it to the
installed version. :mod:`opatlas.session.followed` decides by the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class Treatment(Enum):
    """What a session does with an option or method."""

    HONOURED = "honoured"
    HANDED_ON = "handed on"
    NO_EFFECT = "without effect"


Rows = Mapping[str, tuple[Treatment, str]]
_HONOURED, _HANDED_ON, _NO_EFFECT = Treatment.HONOURED, Treatment.HANDED_ON, Treatment.NO_EFFECT
_SESSION = "plain ONNX Runtime runs the whole session, opened with the option"
_NOT_SET = f"with its default value a plan runs; with another, {_SESSION}"
_RUN = "plain ONNX Runtime executes this run or call"
_LOG = "only changes what ONNX Runtime logs of its own work"
_READS = "reads what was set"
_PROVIDERS_FAIL = "is about providers that fail; a plan has none"
_BOUND = "if the plan cannot take it, the run is handed on with all that is bound"
_LAST_RUN = "of the last run, whoever executed it"
_NO_PROFILE = "no profile was asked for: an empty name and the time 0, as in ONNX Runtime"
_SYNCHRONISED = "nothing runs beside the caller on a CPU"

ARGUMENTS: Rows = {
    "path_or_bytes": (
        _HONOURED,
        "ONNX Runtime runs or refuses a model that cannot be planned or read",
    ),
    "sess_options": (_HONOURED, "see the rows of `SessionOptions`"),
    "providers": (
        _HONOURED,
        f"the CPU's and Azure's; those not installed are skipped with a warning; with any other, {_SESSION}",
    ),
    "provider_options": (_HANDED_ON, f"if any is set, {_SESSION}"),
    "enable_fallback": (_NO_EFFECT, "is about providers that fail; handed on with the session"),
    "read_config_from_model": (_HANDED_ON, f"{_SESSION}; also with `ORT_LOAD_CONFIG_FROM_MODEL=1`"),
    "disabled_optimizers": (_HANDED_ON, f"if any is named, {_SESSION}"),
}
"""Arguments of ``InferenceSession(…)``, with keywords that no signature lists."""

SESSION_OPTIONS: Rows = {
    "intra_op_num_threads": (_HONOURED, "the plan's threads; 0 means all cores"),
    "add_free_dimension_override_by_name": (_HONOURED, "the model is planned at these sizes"),
    "add_free_dimension_override_by_denotation": (_HANDED_ON, _SESSION),
    "add_initializer": (_HANDED_ON, _SESSION),
    "add_external_initializers": (_HANDED_ON, _SESSION),
    "add_external_initializers_from_files_in_memory": (_HANDED_ON, _SESSION),
    "register_custom_ops_library": (_HANDED_ON, _SESSION),
    "add_provider": (_HANDED_ON, _SESSION),
    "add_provider_for_devices": (_HANDED_ON, _SESSION),
    "set_provider_selection_policy": (_HANDED_ON, _SESSION),
    "set_provider_selection_policy_delegate": (_HANDED_ON, _SESSION),
    "has_providers": (_NO_EFFECT, _READS),
    "add_session_config_entry": (_HANDED_ON, f"whatever the entry, {_SESSION}"),
    "get_session_config_entry": (_NO_EFFECT, _READS),
    "set_ep_context_data_read_func": (_HANDED_ON, _SESSION),
    "clear_ep_context_data_read_func": (_NO_EFFECT, "removes an option that would be handed on"),
    "set_load_cancellation_flag": (
        _HANDED_ON,
        "if it is set before the plan is loaded, ONNX Runtime refuses to load",
    ),
    "execution_mode": (_HANDED_ON, _NOT_SET),
    "execution_order": (_HANDED_ON, _NOT_SET),
    "graph_optimization_level": (
        _HANDED_ON,
        f"{_NOT_SET}: the caller may suspect an optimisation to be wrong",
    ),
    "optimized_model_filepath": (_HANDED_ON, _NOT_SET),
    "enable_profiling": (_HANDED_ON, _NOT_SET),
    "profile_file_prefix": (_NO_EFFECT, "names the file of `enable_profiling`, and is handed on with it"),
    "enable_cpu_mem_arena": (_HANDED_ON, _NOT_SET),
    "enable_mem_pattern": (_HANDED_ON, _NOT_SET),
    "enable_mem_reuse": (_HANDED_ON, _NOT_SET),
    "use_deterministic_compute": (_HANDED_ON, _NOT_SET),
    "use_per_session_threads": (_HANDED_ON, _NOT_SET),
    "inter_op_num_threads": (
        _NO_EFFECT,
        "counts only with `execution_mode`, and is handed on with it",
    ),
    "log_severity_level": (_NO_EFFECT, _LOG),
    "log_verbosity_level": (_NO_EFFECT, _LOG),
    "logid": (_NO_EFFECT, _LOG),
}

RUN_OPTIONS: Rows = {
    "add_active_adapter": (_HANDED_ON, _RUN),
    "add_run_config_entry": (_HANDED_ON, _RUN),
    "get_run_config_entry": (_NO_EFFECT, _READS),
    "only_execute_path_to_fetches": (_HANDED_ON, _RUN),
    "terminate": (_HANDED_ON, f"{_RUN}: another thread may set the option at any time"),
    "log_severity_level": (_HANDED_ON, _RUN),
    "log_verbosity_level": (_HANDED_ON, _RUN),
    "logid": (_HANDED_ON, _RUN),
}
"""ONNX Runtime executes every run with options: adapters that were added to them cannot be read back."""

INFERENCE_SESSION: Rows = {
    "run": (
        _HONOURED,
        "a run with other sizes, types or outputs, or with run options, is handed on",
    ),
    "run_with_ort_values": (_HONOURED, "like `run`; handed on if outputs are no tensors of numbers"),
    "run_with_iobinding": (_HONOURED, "like `run`, also with a binding that ONNX Runtime made"),
    "io_binding": (_HONOURED, "see the rows of `IOBinding`"),
    "run_async": (_HANDED_ON, _RUN),
    "run_with_ortvaluevector": (_HANDED_ON, _RUN),
    "get_inputs": (_HONOURED, "as in ONNX Runtime; with `dims` or an example, at these sizes"),
    "get_outputs": (_HONOURED, "as in ONNX Runtime; with `dims` or an example, at these sizes"),
    "get_overridable_initializers": (
        _HONOURED,
        "as in ONNX Runtime; a run that sets one is handed on",
    ),
    "get_modelmeta": (_HONOURED, "as in ONNX Runtime"),
    "get_providers": (_HONOURED, "as in ONNX Runtime"),
    "get_provider_options": (_HONOURED, "empty, for the CPU's provider"),
    "get_session_options": (_HONOURED, "the caller's own, or default ones"),
    "set_providers": (
        _HANDED_ON,
        "with other providers than the CPU's, plain ONNX Runtime runs the session from then on",
    ),
    "enable_fallback": (_NO_EFFECT, _PROVIDERS_FAIL),
    "disable_fallback": (_NO_EFFECT, _PROVIDERS_FAIL),
    "end_profiling": (_HONOURED, _NO_PROFILE),
    "get_profiling_start_time_ns": (_HONOURED, _NO_PROFILE),
    "get_tuning_results": (_HANDED_ON, _RUN),
    "set_tuning_results": (_HANDED_ON, _RUN),
    "set_ep_dynamic_options": (_HANDED_ON, _RUN),
    "get_input_memory_infos": (_HANDED_ON, _RUN),
    "get_output_memory_infos": (_HANDED_ON, _RUN),
    "get_input_epdevices": (_HANDED_ON, _RUN),
    "get_provider_graph_assignment_info": (_HANDED_ON, _RUN),
    "create_ortvalue_from_shape_and_type": (_HANDED_ON, _RUN),
    "release_captured_graph": (_HANDED_ON, _RUN),
}

IO_BINDING: Rows = {
    "bind_cpu_input": (_HONOURED, _BOUND),
    "bind_input": (_HONOURED, _BOUND),
    "bind_ortvalue_input": (_HONOURED, _BOUND),
    "bind_output": (_HONOURED, _BOUND),
    "bind_ortvalue_output": (_HONOURED, _BOUND),
    "clear_binding_inputs": (_HONOURED, ""),
    "clear_binding_outputs": (_HONOURED, ""),
    "synchronize_inputs": (_NO_EFFECT, _SYNCHRONISED),
    "synchronize_outputs": (_NO_EFFECT, _SYNCHRONISED),
    "get_outputs": (_HONOURED, _LAST_RUN),
    "get_outputs_as_ortvaluevector": (_HONOURED, _LAST_RUN),
    "copy_outputs_to_cpu": (_HONOURED, _LAST_RUN),
}

TABLES: Mapping[str, Rows] = {
    "InferenceSession(…)": ARGUMENTS,
    "InferenceSession": INFERENCE_SESSION,
    "SessionOptions": SESSION_OPTIONS,
    "RunOptions": RUN_OPTIONS,
    "IOBinding": IO_BINDING,
}


def followed_without_handing_on(rows: Rows, name: str) -> bool:
    """Whether a plan does all that the option says. A newer version's, without a row, is handed on."""
    treatment, _ = rows.get(name, (_HANDED_ON, ""))
    return treatment is not _HANDED_ON


def described() -> str:
    """The table as a document: one line for all names that are treated alike."""
    lines = [
        "# What does a session do with ONNX Runtime's options and methods?",
        "",
        "`python -m opatlas.session.surface` makes this page. A test compares it with the installed version.",
        "",
        "- **Honoured**: a plan does what the option or method says.",
        "- **Handed on**: plain ONNX Runtime does it, with that option. The log and",
        '  `session.refused["opatlas"]` say so once.',
        "- **Without effect**: no value depends on it.",
    ]
    for kind, rows in TABLES.items():
        alike: dict[tuple[Treatment, str], list[str]] = {}
        for name, row in rows.items():
            alike.setdefault(row, []).append(f"`{name}`")
        lines += ["", f"## `{kind}`", "", "| name | in a session | |", "|--|--|--|"]
        lines += [
            f"| {', '.join(names)} | {treatment.value} | {says} |"
            for (treatment, says), names in alike.items()
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(described(), end="")
