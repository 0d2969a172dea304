"""What a run of a graph gives, on copies of what it writes to: for who compares two ways of running it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from opatlas.dynamo.weights import inputs_of_graph
from opatlas.load.torch.ops.types import to_array
from opatlas.plan.closeness import is_close

Call = Callable[..., Any]


def copies_of(inputs: Sequence[Any], written: Collection[int]) -> list[Any]:
    """The inputs, those of these numbers in memory of their own: laid out as before, and what shared memory
    still does. ``written`` has all that share memory with one of them."""
    made = list(inputs)
    memories: dict[int, torch.UntypedStorage] = {}
    for at in sorted(written):
        memory = inputs[at].untyped_storage()
        if memory._cdata not in memories:
            memories[memory._cdata] = memory.clone()
        made[at] = _laid_out(inputs[at], memories[memory._cdata])
    return made


def _laid_out(like: torch.Tensor, memory: torch.UntypedStorage) -> torch.Tensor:
    empty = torch.empty(0, dtype=like.dtype, device=like.device)
    made = empty.set_(memory, like.storage_offset(), like.shape, like.stride())  # type: ignore[call-overload]
    made = made.conj() if like.is_conj() else made
    return made._neg_view() if like.is_neg() else made


def outcome(call: Call, inputs: Sequence[Any], written: Collection[int]) -> list[Any]:
    """Copies of what a run gives and of what it writes to its inputs, which stay as they are."""
    given = copies_of(inputs, written)
    with inputs_of_graph(given):
        made = pytree.tree_leaves(call(*given))
    return [_copy(one) for one in (*made, *(given[at] for at in sorted(written)))]


def outcome_with_gradients(call: Call, inputs: Sequence[Any], written: Collection[int]) -> list[Any]:
    """The same, and the gradients of what it gives, of one type in one array: nobody's ``grad`` changes."""
    given = [_apart(one) for one in copies_of(inputs, written)]
    made = pytree.tree_leaves(call(*given))
    wanted = [one for one in given if isinstance(one, torch.Tensor) and one.requires_grad]
    ends = [one for one in made if isinstance(one, torch.Tensor) and one.requires_grad]
    weights = [_weighed(one) for one in ends]
    found = torch.autograd.grad(ends, wanted, weights, allow_unused=True) if ends else ()
    gradients: dict[torch.dtype, list[torch.Tensor]] = {}
    for one in found:
        if one is not None:
            gradients.setdefault(one.dtype, []).append(one.reshape(-1))
    left = [_copy(one) for one in (*made, *(given[at] for at in sorted(written)))]
    # Some are nothing but rounding (of a bias before a normalisation): they count beside the others.
    return [*left, *(torch.cat(parts) for _, parts in sorted(gradients.items(), key=lambda one: str(one[0])))]


def are_same(found: Sequence[Any], expected: Sequence[Any]) -> bool:
    """Whether two outcomes are the same but for rounding."""
    return is_close([_array(one) for one in found], [_array(one) for one in expected])


@contextmanager
def random_state_kept() -> Iterator[None]:
    """Whatever is drawn inside was not drawn afterwards."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices=list(devices)):
        yield


def _apart(one: Any) -> Any:
    """The tensor without its history and its hooks, in the same memory."""
    if not isinstance(one, torch.Tensor):
        return one
    return one.detach().requires_grad_(one.requires_grad)


def _weighed(one: torch.Tensor) -> torch.Tensor:
    """A gradient to begin with, of unlike numbers: of like ones many sums are zero."""
    numbers = torch.arange(one.numel(), dtype=torch.float64, device=one.device)
    return torch.cos(numbers).to(one.dtype).reshape(one.shape)


def _copy(one: Any) -> Any:
    return one.detach().clone() if isinstance(one, torch.Tensor) else one


def _array(one: Any) -> Any:
    """A tensor as an array; what is none stays."""
    if not isinstance(one, torch.Tensor):
        return one
    plain = one.detach().cpu().resolve_conj().resolve_neg()
    made: np.ndarray = to_array(plain, str(plain.dtype).removeprefix("torch."))
    return made
