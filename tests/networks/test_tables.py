"""Tables of positions and levels are found in every method, so that training never decays them."""

import pytest
from torch import nn

from unskew.methods import METHODS
from unskew.networks.observation import decays
from unskew.networks.registry import Network, Problem

DEVICES = {"device": ("desk", "phone")}
LAYERS = (nn.Linear, nn.LSTM, nn.GRU, nn.MultiheadAttention)


def kept_matrices(name, bias=DEVICES, network=Network(hidden=(6,)), **hyper):
    """Names of parameters of two dimensions that are not decayed."""
    method = METHODS[name](Problem(4, 5, bias, network), **hyper)
    owners = dict(method.named_modules())
    return {
        full
        for full, parameter in method.named_parameters()
        if parameter.ndim >= 2 and not decays(owners[full.rpartition(".")[0]], parameter)
    }


@pytest.mark.parametrize(
    ("name", "tables"),
    [
        ("naive", set()),
        ("dla", {"observation.levels.0"}),
        ("affine_softmax", {"stretch.levels.0", "shift.levels.0"}),
        ("iobm", {"position.levels.0", "context.positions.weight", "context.clicks.weight"}),
        ("xpa", {"position.levels.0", "context.asking.weight", "context.asked.weight"}),
        ("upe", {"position.table"}),
        ("ubm", {"observation.levels.0", "table"}),
    ],
)
def test_tables_of_positions_and_levels_are_not_decayed(name, tables):
    assert kept_matrices(name) == tables


def test_the_table_of_vectorization_is_not_decayed_but_its_network_of_bias_columns_is():
    assert kept_matrices("vectorization", bias={}) == {"observation.table"}
    assert kept_matrices("vectorization") == set()


def test_places_that_a_listwise_network_is_told_are_not_decayed():
    network = Network(kind="listwise", hidden=(6,), expand=8, heads=2, shown_order=True)
    assert kept_matrices("naive", network=network) == {"relevance.places.weight"}


@pytest.mark.parametrize("name", sorted(METHODS))
def test_only_weights_of_layers_are_decayed(name):
    hyper = {"propensities": [1.0, 0.8, 0.6, 0.4, 0.2]} if name in ("ipw", "doubly_robust") else {}
    method = METHODS[name](Problem(4, 5, DEVICES, Network(hidden=(6,))), **hyper)
    owners = [part for part in method.modules() for entry in part.parameters(recurse=False) if decays(part, entry)]
    assert {type(part) for part in owners if not isinstance(part, LAYERS)} == set()
