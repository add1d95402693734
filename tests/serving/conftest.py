"""Shared by the tests of serving."""

from functools import cache

import pytest
from torch.onnx._internal.exporter._registration import ONNXRegistry


@pytest.fixture(autouse=True, scope="session")
def _one_table_of_operators():
    """Torch collects all operators of ONNX again for each export: half of its time, and always the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ONNXRegistry, "from_torchlib", staticmethod(cache(ONNXRegistry.from_torchlib)))
        yield
