"""What becomes of each option and method of ONNX Runtime's session in one that stands in for it. PURE.

``python -m opatlas.session.surface`` writes ``docs/onnxruntime.md`` from this table; a test holds it to the
installed version. :mod:`opatlas.session.followed` decides by the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class Treatment(Enum):
    """What a session makes of an option or a method."""

    HONOURED = "honoured"
    HANDED_ON = "handed on"
    NO_EFFECT = "without effect"


Rows = Mapping[str, tuple[Treatment, str]]
_HONOURED, _HANDED_ON, _NO_EFFECT = Treatment.HONOURED, Treatment.HANDED_ON, Treatment.NO_EFFECT
_SESSION = "the whole session is ONNX Runtime's own, opened with the option"
_NOT_SET = f"as set by default a plan runs; else {_SESSION}"
_RUN = "this run, or call, is ONNX Runtime's own"
_LOG = "what ONNX Runtime logs of its own work; no value depends on it"
_READS = "reads what was set"

ARGUMENTS: Rows = {
    "path_or_bytes": (
        _HONOURED,
        "a model that cannot be planned, or read, is ONNX Runtime's to run or refuse",
    ),
    "sess_options": (_HONOURED, "by the rows of `SessionOptions`"),
    "providers": (
        _HONOURED,
        "the processor's, Azure's, and those not installed, which are passed over with a warning; "
        f"with any other {_SESSION}",
    ),
    "provider_options": (_HANDED_ON, f"where any is set {_SESSION}"),
    "enable_fallback": (_NO_EFFECT, "it is about providers that fail; handed on where the session is"),
    "read_config_from_model": (_HANDED_ON, "as above, `ORT_LOAD_CONFIG_FROM_MODEL=1` too"),
    "disabled_optimizers": (_HANDED_ON, f"where any is named {_SESSION}"),
}
"""Of ``InferenceSession(…)``, keywords included that are in no signature."""

SESSION_OPTIONS: Rows = {
    "intra_op_num_threads": (_HONOURED, "a plan's threads, all cores where it is 0"),
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
    "add_session_config_entry": (_HANDED_ON, f"whatever the entry: {_SESSION}"),
    "get_session_config_entry": (_NO_EFFECT, _READS),
    "set_ep_context_data_read_func": (_HANDED_ON, _SESSION),
    "clear_ep_context_data_read_func": (_NO_EFFECT, "takes back what would be handed on"),
    "set_load_cancellation_flag": (_HANDED_ON, "set before the plan is there, ONNX Runtime refuses to load"),
    "execution_mode": (_HANDED_ON, _NOT_SET),
    "execution_order": (_HANDED_ON, _NOT_SET),
    "graph_optimization_level": (
        _HANDED_ON,
        f"{_NOT_SET}: who asks for less may do so because an optimisation errs",
    ),
    "optimized_model_filepath": (_HANDED_ON, _NOT_SET),
    "enable_profiling": (_HANDED_ON, _NOT_SET),
    "profile_file_prefix": (_NO_EFFECT, "names what `enable_profiling` writes, and is handed on with it"),
    "enable_cpu_mem_arena": (_HANDED_ON, _NOT_SET),
    "enable_mem_pattern": (_HANDED_ON, _NOT_SET),
    "enable_mem_reuse": (_HANDED_ON, _NOT_SET),
    "use_deterministic_compute": (_HANDED_ON, _NOT_SET),
    "use_per_session_threads": (_HANDED_ON, _NOT_SET),
    "inter_op_num_threads": (
        _NO_EFFECT,
        "of nodes that run at once: with `execution_mode`, which is handed on",
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
    "terminate": (_HANDED_ON, f"{_RUN}: another thread may set it at any time"),
    "log_severity_level": (_HANDED_ON, _RUN),
    "log_verbosity_level": (_HANDED_ON, _RUN),
    "logid": (_HANDED_ON, _RUN),
}
"""A run with options is ONNX Runtime's, whatever they say: adapters leave no trace on them to be read."""

INFERENCE_SESSION: Rows = {
    "run": (
        _HONOURED,
        "inputs of other sizes or kinds, other outputs, and run options: the run is handed on",
    ),
    "run_with_ort_values": (_HONOURED, "as `run`; outputs that are no tensors of numbers: handed on"),
    "run_with_iobinding": (_HONOURED, "as `run`, also over a binding that ONNX Runtime made"),
    "io_binding": (_HONOURED, "by the rows of `IOBinding`"),
    "run_async": (_HANDED_ON, _RUN),
    "run_with_ortvaluevector": (_HANDED_ON, _RUN),
    "get_inputs": (_HONOURED, "as ONNX Runtime says it; with `dims` or an example at these sizes"),
    "get_outputs": (_HONOURED, "as `get_inputs`"),
    "get_overridable_initializers": (
        _HONOURED,
        "as ONNX Runtime says it; a run that is given one is handed on",
    ),
    "get_modelmeta": (_HONOURED, "as ONNX Runtime says it"),
    "get_providers": (_HONOURED, "those that ONNX Runtime would name"),
    "get_provider_options": (_HONOURED, "none, of the processor's"),
    "get_session_options": (_HONOURED, "the caller's own; default ones where none were given"),
    "set_providers": (
        _HANDED_ON,
        "with other than the processor's the session is ONNX Runtime's from then on",
    ),
    "enable_fallback": (_NO_EFFECT, "it is about providers that fail, which a plan has none of"),
    "disable_fallback": (_NO_EFFECT, "as above"),
    "end_profiling": (_HONOURED, "no profile was asked for, so there is no file: an empty name, as there"),
    "get_profiling_start_time_ns": (_HONOURED, "as above: 0"),
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
    "bind_cpu_input": (_HONOURED, "what the plan does not take is handed on with all that is bound"),
    "bind_input": (_HONOURED, "as above"),
    "bind_ortvalue_input": (_HONOURED, "as above"),
    "bind_output": (_HONOURED, "as above"),
    "bind_ortvalue_output": (_HONOURED, "as above"),
    "clear_binding_inputs": (_HONOURED, ""),
    "clear_binding_outputs": (_HONOURED, ""),
    "synchronize_inputs": (_NO_EFFECT, "nothing runs beside the caller on the processor"),
    "synchronize_outputs": (_NO_EFFECT, "as above"),
    "get_outputs": (_HONOURED, "of the last run, whoever ran it"),
    "get_outputs_as_ortvaluevector": (_HONOURED, "as above"),
    "copy_outputs_to_cpu": (_HONOURED, "as above"),
}

TABLES: Mapping[str, Rows] = {
    "InferenceSession(…)": ARGUMENTS,
    "InferenceSession": INFERENCE_SESSION,
    "SessionOptions": SESSION_OPTIONS,
    "RunOptions": RUN_OPTIONS,
    "IOBinding": IO_BINDING,
}


def followed_without_handing_on(rows: Rows, name: str) -> bool:
    """Whether a plan does all that the option says. One in no row, of a newer version, is handed on."""
    treatment, _ = rows.get(name, (_HANDED_ON, ""))
    return treatment is not _HANDED_ON


def described() -> str:
    """The table as a document."""
    lines = [
        "# ONNX Runtime's options and methods in a session",
        "",
        "Made by `python -m opatlas.session.surface`; a test holds it to the installed version. `honoured`:",
        "a plan does what it says. `handed on`: plain ONNX Runtime runs, with that option; the log and",
        '`session.refused["opatlas"]` say so once. `without effect`: no value depends on it.',
    ]
    for kind, rows in TABLES.items():
        lines += ["", f"## `{kind}`", "", "| name | in a session | |", "|--|--|--|"]
        lines += [f"| `{name}` | {treatment.value} | {says} |" for name, (treatment, says) in rows.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(described(), end="")
