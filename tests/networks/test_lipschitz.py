"""Certified networks: no output is steeper than the constant, and the constant is reached."""

import pytest
import torch
from torch.testing import assert_close

from unskew.networks.limited_observation import LipschitzNetwork, MaxMin, OrthogonalLinear


@pytest.mark.parametrize("shape", [(7, 4), (4, 7), (6, 6)])
@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_an_orthogonal_layer_lengthens_nothing_whatever_its_parameters(shape, scale):
    torch.manual_seed(0)
    layer = OrthogonalLinear(*shape)
    with torch.no_grad():
        layer.upper.normal_(std=scale)
    lengths = torch.linalg.svdvals(layer.weight.double())
    assert layer.weight.shape == shape[::-1]
    assert_close(lengths, torch.ones(min(shape), dtype=torch.float64), rtol=0, atol=5e-7)


def test_max_min_sorts_pairs():
    assert_close(MaxMin()(torch.tensor([1.0, 5.0, 3.0, 2.0])), torch.tensor([3.0, 5.0, 1.0, 2.0]))


def steepest(network, n_inputs, n_points=5_000):
    """The largest slope of any output at points near and far: sorting and matrices are linear in between."""
    points = (torch.randn(n_points, n_inputs) * torch.logspace(-2, 2, n_points).unsqueeze(1)).requires_grad_()
    outputs = network(points)
    slopes = [torch.autograd.grad(one.sum(), points, retain_graph=True)[0].norm(dim=1) for one in outputs.unbind(1)]
    return float(torch.stack(slopes).max())


@pytest.mark.parametrize("hidden", [(), (8,), (8, 6)])
@pytest.mark.parametrize("seed", range(3))
def test_no_output_is_steeper_than_the_constant(hidden, seed):
    torch.manual_seed(seed)
    network = LipschitzNetwork(5, hidden, 3, constant=0.7)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(std=10.0 ** (seed - 1))
    assert 0 < steepest(network, 5) <= 0.7 * (1 + 1e-5)


def test_the_constant_is_reached():
    torch.manual_seed(0)
    network = LipschitzNetwork(3, (4,), 1, constant=2.0)
    with torch.no_grad():
        network.layers[-1].weight.normal_(std=10.0)  # cut to unit length
    # Sorting keeps lengths, and the 4 units see 3 inputs in full: of 4 directions 3 are not lost.
    assert steepest(network, 3) > 1.5


def test_it_starts_as_zero_and_learns():
    torch.manual_seed(0)
    network = LipschitzNetwork(3, (4,), 2, constant=1.0)
    points = torch.randn(6, 3)
    assert_close(network(points), torch.zeros(6, 2))
    network(points).sum().backward()
    assert float(network.layers[-1].weight.grad.abs().sum()) > 0


def test_odd_layers_are_refused():
    with pytest.raises(ValueError, match="7 is odd: use an even number"):
        LipschitzNetwork(3, (8, 7), 1, constant=1.0)
