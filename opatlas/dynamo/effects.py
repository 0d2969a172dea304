"""What a graph does beside computing, found out without running it: whether it may be run for trying.

A graph is run for its user, once for each call. Whoever times or compares it runs it again, which must not be
noticed: not by other processes, not by a random number, not by who counts calls. So only operators that are
known to compute and nothing else are run again, and what they write to is copied before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._higher_order_ops.effects import _get_effect
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from opatlas.dynamo.sharing import lies_in_several
from opatlas.errors import first_line

COMPUTE = frozenset(
    ("aten", "prim", "prims", "quantized", "quantized_decomposed", "mkldnn", "onednn", "torchvision")
)
"""Namespaces whose operators compute, and write to nothing but what their schema says. Of others anything
may be expected, whatever their schema says."""
COLLECTIVE = frozenset(("c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor", "symm_mem"))
ACTS = frozenset(
    (
        *("_backward", "backward", "from_file", "record_event", "record_stream", "register_hook"),
        *("register_post_accumulate_grad_hook", "requires_grad_", "retain_grad", "set_data", "share_memory_"),
        *("synchronize", "wait_event", "wait_stream", "warn"),
    )
)
"""PyTorch's own names for what does more than compute."""
SETS_MODES = ("set_", "_set_", "seed", "manual_seed", "initial_seed")
"""How names begin of functions that change how PyTorch computes afterwards."""
ACTING = ("torch.accelerator", "torch.cuda", "torch.mtia", "torch.xpu", "torch._dynamo.external_utils")
"""Modules whose functions deal with streams, events and devices, or call hooks."""
KEYS = ("CPU", "CUDA", "CompositeExplicitAutograd")
"""Under which an implementation runs in place of PyTorch's."""
EARLY_KEYS = ("Autograd", "AutogradCPU", "AutogradCUDA", "AutogradOther", "CompositeImplicitAutograd")
"""The same, but before anything can be recorded: of whatever operators, it could be called by any."""
PYTHONS = frozenset(("_operator", "operator", "math", "builtins", "itertools"))
HIDDEN_WRITES: Mapping[str, tuple[int, ...]] = {
    "native_batch_norm": (3, 4),
    "cudnn_batch_norm": (3, 4),
    "miopen_batch_norm": (3, 4),
    "batch_norm_gather_stats": (3, 4),
    "batch_norm_gather_stats_with_counts": (3, 4),
    "batch_norm_update_stats": (1, 2),
}
"""Arguments that aten operators write to though their schema does not say it."""


@dataclass(frozen=True)
class Effects:
    """``written``: numbers of the inputs in whose memory the graph writes; ``why``: the reason why it must
    not be run for trying, empty where it may be run on copies of those."""

    written: frozenset[int] = frozenset()
    why: str = ""


def effects_of(module: fx.GraphModule, inputs: Sequence[Any]) -> Effects:
    """Of a graph that Dynamo found, called with such ``inputs`` (tensors, numbers, symbolic ones)."""
    why = (
        _of_inputs(inputs)
        or next(filter(None, map(_of_node, _nodes(module))), "")
        or _of_modes(module)
        or _of_early_ones()
    )
    if why:
        return Effects(why=why)
    try:
        return _recorded(module, inputs)
    except Exception as error:  # an operator that cannot be followed without numbers
        return Effects(why=f"what it does could not be found out: {first_line(error)}")


def other_ranks() -> str:
    """Why nothing is timed or compared in a process that is one of several: each would come to its own
    choice. Empty in any other."""
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return ""
    count = distributed.get_world_size()
    return f"its process is one of {count}, which have to run the same" if count > 1 else ""


# ---- by what is called ----------------------------------------------------------------------------------


def _nodes(module: fx.GraphModule) -> list[fx.Node]:
    return [node for node in module.graph.nodes if node.op.startswith("call_")]


def _of_inputs(inputs: Sequence[Any]) -> str:
    for one in inputs:
        if isinstance(one, torch.Tensor):
            if type(one) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
                return "it has tensors of another class than PyTorch's own"
            if one.layout is not torch.strided:
                return "it has sparse tensors"
        elif not isinstance(one, bool | int | float | complex | torch.SymInt | torch.SymFloat | None):
            return f"it has inputs that are neither tensors nor numbers ({type(one).__name__})"
    return ""


def _of_node(node: fx.Node) -> str:
    """Why this call must not be repeated, by its name alone."""
    target = node.target
    if node.op == "call_method":
        return _of_name(str(target))
    if node.op == "call_module":
        owner = node.graph.owning_module
        assert owner is not None
        made = owner.get_submodule(str(target))
        own = type(made).__module__.startswith("torch.nn.")
        return "" if own else f"it calls a module that is not PyTorch's own ({type(made).__name__})"
    if isinstance(target, HigherOrderOperator):
        return f"it has a branch, a loop or a call that PyTorch does not look into ({target.name()})"
    if isinstance(target, OpOverload | OpOverloadPacket):
        return _of_operator(target)
    module = getattr(target, "__module__", None) or ""
    if module.startswith("torch.distributed"):
        return f"it talks to other processes ({_name(target)})"
    if module.startswith(ACTING):
        return f"it does more than compute ({module}.{_name(target)})"
    if module.split(".")[0] != "torch" and module not in PYTHONS:
        return f"it calls a function that is not PyTorch's own ({_name(target)})"
    return _of_name(_name(target))


def _of_name(name: str) -> str:
    if name in ACTS:
        return f"it does more than compute ({name})"
    if name.startswith(SETS_MODES) and name not in ("set_", "_set_grad_enabled"):
        return f"it changes how PyTorch computes ({name})"
    return ""


def _of_operator(target: OpOverload | OpOverloadPacket) -> str:
    said = str(target)
    namespace, name = said.split(".")[:2]
    if namespace in COLLECTIVE:
        return f"it talks to other processes ({said})"
    if namespace not in COMPUTE:
        return f"it calls an operator that is not PyTorch's own, which may do more than compute ({said})"
    if isinstance(target, OpOverload) and _get_effect(target) is not None:
        return f"it does more than compute ({said})"
    if isinstance(target, OpOverload) and _is_replaced(target):
        return f"it calls an operator that is not PyTorch's own any more ({said})"
    return _of_name(name)


def _is_replaced(target: OpOverload) -> bool:
    """Whether somebody registered another implementation of an operator (``torch.library.Library.impl``)."""
    if target.namespace != "aten":
        return False
    name = target.name().replace("::", "/")
    return any(f"{name}/{key}" in torch.library._impls for key in KEYS)


def _of_early_ones() -> str:
    replaced = [name.split("/") for name in tuple(torch.library._impls) if name.startswith("aten/")]
    early = [operator for _, operator, key in replaced if key in EARLY_KEYS]
    return f"an operator of PyTorch's is not its own any more (aten.{early[0]})" if early else ""


def _name(target: Any) -> str:
    return str(getattr(target, "__name__", None) or type(target).__name__)


def _of_modes(module: fx.GraphModule) -> str:
    """Whether it leaves PyTorch in another mode than it was in."""
    calls = [(_name(node.target), node.args) for node in _nodes(module)]
    gradients = [args[0] for name, args in calls if name == "_set_grad_enabled"]
    if gradients and gradients[-1] is not torch.is_grad_enabled():
        return "it changes how PyTorch computes (set_grad_enabled)"
    names = [name for name, _ in calls]
    for mode in ("autocast", "inference_mode"):
        if names.count(f"_enter_{mode}") != names.count(f"_exit_{mode}"):
            return f"it changes how PyTorch computes ({mode})"
    return ""


# ---- by what it does to tensors without numbers ---------------------------------------------------------


def _recorded(module: fx.GraphModule, inputs: Sequence[Any]) -> Effects:
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    given = [_without_numbers(one, mode) for one in inputs]
    recorder = _Recorder(mode)
    with torch.set_grad_enabled(torch.is_grad_enabled()), mode, recorder:
        module.forward(*given)
    if recorder.why:
        return Effects(why=recorder.why)
    places = {at: _memory(one) for at, one in enumerate(given) if isinstance(one, torch.Tensor)}
    if not recorder.reformed.isdisjoint(places.values()):
        return Effects(why="it changes the form of an input in place")
    written = frozenset(at for at, memory in places.items() if memory in recorder.written)
    if written and lies_in_several(inputs, written):
        return Effects(why="it writes to memory that several of its inputs lie in")
    return Effects(written)


def _without_numbers(one: Any, mode: FakeTensorMode) -> Any:
    if isinstance(one, torch.Tensor):
        return mode.from_tensor(one, static_shapes=True)
    if isinstance(one, torch.SymInt | torch.SymFloat):
        return one.node.hint  # int() would fix the size
    return one


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


class _Recorder(TorchDispatchMode):
    """Which memories operators write to, which of them get another form, and why one must not be run
    again."""

    def __init__(self, mode: FakeTensorMode) -> None:
        super().__init__()
        self.written: set[int] = set()
        self.reformed: set[int] = set()
        self.why = ""
        self._mode = mode
        self._own: dict[int, torch.Tensor] = {}  # what the graph holds beside its inputs

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        self._look(func, args, kwargs)
        return func(*args, **kwargs)

    def _look(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.why = self.why or _of_operator(func) or _of_random(func, args, kwargs)
        if func is not torch.ops.aten.lift_fresh.default:  # numbers that the graph's text says
            for one in pytree.tree_leaves((args, kwargs)):
                if isinstance(one, torch.Tensor) and not isinstance(one, FakeTensor):
                    held = self._mode.from_tensor(one, static_shapes=True)
                    self._own[_memory(held)] = held
        for one in _written_by(func, args, kwargs):
            fake = one if isinstance(one, FakeTensor) else self._mode.from_tensor(one, static_shapes=True)
            self.written.add(_memory(fake))
            if _memory(fake) in self._own:
                self.why = self.why or "it writes to tensors that are none of its inputs"
            if torch.Tag.inplace_view in func.tags or func.overloadpacket is torch.ops.aten.set_:
                self.reformed.add(_memory(fake))


def _written_by(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """Tensors among its arguments that an operator writes to."""
    hidden = HIDDEN_WRITES.get(func._schema.name.split("::")[1], ())
    given = dict(zip((one.name for one in func._schema.arguments), args, strict=False)) | kwargs
    if given.get("training") is False:
        hidden = ()
    found = []
    for at, argument in enumerate(func._schema.arguments):
        writes = at in hidden or (argument.alias_info is not None and argument.alias_info.is_write)
        if writes:
            found.append(given.get(argument.name))
    return [one for one in pytree.tree_leaves(found) if isinstance(one, torch.Tensor)]


def _of_random(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Attention is tagged so for its dropout, which inference turns off."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return ""
    arguments = func._schema.arguments
    defaults = {one.name: one.default_value for one in arguments if one.has_default_value()}
    given = dict(zip((one.name for one in arguments), args, strict=False))
    return "" if (defaults | given | kwargs).get("dropout_p") == 0.0 else f"it draws random numbers ({func})"
