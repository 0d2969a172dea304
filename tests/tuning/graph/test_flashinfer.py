"""FlashInfer's definitions: which are operators, and what the others lack."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opatlas.identity import Operator
from tuning.bare.problems import problems
from tuning.conf import conf
from tuning.graph.flashinfer import EPSILON, LENGTH
from tuning.graph.operator_list import extract_list

PAGE = Path(__file__).resolve().parents[3] / "docs/measuring.md"


def definition(name: str, *shapes: list[Any], **attrs: Any) -> dict[str, Any]:
    inputs = [{"shape": shape, "dtype": "bfloat16"} for shape in shapes]
    return {"op": f"flashinfer.{name}", "attrs": attrs, "inputs": inputs}


def read(document: dict[str, Any]) -> tuple[Operator | None, str]:
    found = extract_list(json.dumps([document]).encode(), {"M": 3, "batch": 5})
    return (found.operators[0].operator if found.operators else None), "".join(found.unmapped)


@pytest.mark.parametrize(
    ("document", "nodes", "made"),
    [
        (definition("gemm", ["M", 64], [32, 64], n=32, k=64), ["Gemm"], [(3, 32)]),
        (definition("rmsnorm", ["batch", 64], [64], h=64), ["RMSNormalization"], [(5, 64)]),
        (
            definition("fused_add_rmsnorm", ["batch", 64], ["batch", 64], [64], h=64),
            ["Add", "RMSNormalization"],
            [(5, 64), (5, 64)],
        ),
        (
            definition("gqa_ragged_prefill_causal", h=8, kv=2, d=64),
            ["Attention"],
            [(1, 8, LENGTH, 64)],
        ),
        (
            definition("mla_ragged_prefill_causal", h=16, qk=192, vo=128, length=300),
            ["Attention"],
            [(1, 16, 300, 128)],
        ),
    ],
)
def test_what_onnx_has_an_operator_for_is_one(
    document: dict[str, Any], nodes: list[str], made: list[tuple[int, ...]]
) -> None:
    operator, reason = read(document)
    assert operator is not None, reason
    assert list(operator.op_types) == nodes
    assert [value.shape for value in operator.output_values] == made
    attributes = operator.nodes[-1].attributes
    if "Attention" in nodes:
        q, k, v = (operator.value(number) for number in operator.nodes[0].inputs[:3])
        assert (attributes["is_causal"], q.dtype, q.shape[1] % k.shape[1]) == (1, "bfloat16", 0)
        assert k.shape[:3] == v.shape[:3]
    if "RMSNormalization" in nodes:
        assert attributes["epsilon"] == pytest.approx(EPSILON)


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (definition("gqa_paged_decode", h=32, kv=8, d=128, ps=1), "pages that a table names"),
        (definition("mla_paged_prefill_causal", h=16, ckv=512, kpe=64, ps=1), "pages that a table names"),
        (definition("gdn_decode_k_last", qk=8, v=16, d=128), "a state is carried"),
        (definition("moe_fp8_block_scale_renorm", topk=10), "experts are chosen by data"),
        (definition("top_p_sampling_from_probs", ["batch", 32000]), "draws random numbers"),
        (definition("rope", ["batch", 64]), "rope has no rule yet"),
        (definition("gemm", ["M", 64]), "has 1 inputs, not 2"),
        (definition("gqa_ragged_prefill_causal", kv=2, d=64), "do not fit"),
    ],
)
def test_what_is_none_says_why(document: dict[str, Any], reason: str) -> None:
    operator, said = read(document)
    assert operator is None
    assert reason in said


def test_the_page_counts_them_as_the_list_has_them() -> None:
    """Where the list lies: the sentence of docs/measuring.md is what is found."""
    own = [one for one in problems() if one.suite == "flashinfer_definitions" and one.dtype == "bfloat16"]
    if not own:
        pytest.skip(f"flashinfer_definitions.json does not lie in {conf().workloads}")
    mapped = ["+".join(one.operator.op_types) for one in own if one.operator]
    counts = {one: mapped.count(one) for one in mapped}
    assert (
        f"Of FlashInfer's {len(own)} definitions {len(mapped)} are: "
        f"{counts['Gemm']} products, {counts['RMSNormalization']} RMS norms, "
        f"{counts['Add+RMSNormalization']} more after an addition, "
        f"and {counts['Attention']} prefills"
    ) in PAGE.read_text()
    for reason in {one.reason.removeprefix("flashinfer: ") for one in own if not one.operator}:
        many = sum(one.reason.endswith(reason) for one in own)
        assert f"| {many} | {reason} |" in PAGE.read_text()
