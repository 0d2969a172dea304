"""Built-in sample models: the classic graphs of ONNX's own wheel."""

from __future__ import annotations

from pathlib import Path

import onnx

from opatlas.errors import InvalidModel
from tuning.graph.weights import randomise_weights

SAMPLES = {
    "resnet50": "light_resnet50",
    "vgg19": "light_vgg19",
    "squeezenet": "light_squeezenet",
    "alexnet": "light_bvlc_alexnet",
    "zfnet512": "light_zfnet512",
    "densenet121": "light_densenet121",
    "inception_v2": "light_inception_v2",
    "shufflenet": "light_shufflenet",
}
"""Name → file, without its ending, in ``onnx/backend/test/data/light`` (Apache-2.0)."""


def sample_graph(name: str) -> bytes:
    """The sample as in the wheel: a few kB, with generated constants as weights. Enough to be taken apart.
    Raises :class:`InvalidModel` with the existing names."""
    if name not in SAMPLES:
        raise InvalidModel(f"There is no sample '{name}'; there are {', '.join(SAMPLES)}.")
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    return (folder / f"{SAMPLES[name]}.onnx").read_bytes()


def sample_model(name: str, seed: int = 0) -> bytes:
    """The sample with seeded random weights scaled by fan-in (ResNet-50: 100 MB), fit for running."""
    model = onnx.load_model_from_string(sample_graph(name))
    return randomise_weights(model, seed).SerializeToString()
