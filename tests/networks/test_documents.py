"""Networks of documents: layers in the order of the reference, choices by name, scores by document alone."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from unskew.networks.documents import FeatureLayer, mlp, resized, tabular
from unskew.networks.registry import Network, Problem


def layers(network):
    return [type(layer) for layer in network]


def test_mlp_normalizes_before_every_linear_layer():
    block = [nn.LayerNorm, nn.Linear, nn.ELU]
    assert layers(mlp(5, (4, 3, 2))) == block * 3 + [nn.LayerNorm, nn.Linear]


def test_dropout_follows_the_activation_and_norm_can_be_left_out():
    network = mlp(5, (4,), activation="relu", dropout=0.1, norm=False)
    assert layers(network) == [nn.Linear, nn.ReLU, nn.Dropout, nn.Linear]


def test_the_default_gives_the_last_layer_the_features_beside_what_the_hidden_layers_made_of_them():
    network = tabular(2, (3,), norm=False)
    beside, last = network
    features = torch.tensor([[5.0, -1.0]])
    with torch.no_grad():
        last.weight.copy_(torch.tensor([[10.0, 1.0, 0.0, 0.0, 0.0]]))
        last.bias.zero_()
        assert_close(network(features), torch.tensor([[49.0]]))  # 10 · 5 − 1: the hidden layer weighs nothing
    assert layers(beside.layers) == [FeatureLayer, nn.ELU]


def test_the_default_normalizes_nothing_and_after_hidden_layers_if_asked_to():
    hidden = [FeatureLayer, nn.ELU, nn.Dropout, nn.Linear, nn.ELU, nn.Dropout]
    assert layers(tabular(5, (4, 3), dropout=0.1)[0].layers) == hidden
    assert layers(tabular(5, (4,), norm=True)[0].layers) == [FeatureLayer, nn.ELU, nn.LayerNorm]
    assert layers(tabular(5, ())) == [FeatureLayer]


def test_layers_of_many_features_learn_slowly():
    few, many = (tabular(n, (4,)) for n in (128, 256))
    assert [few[0].layers[0].rate, few[1].rate] == [1, 1]  # the last one sees 132 inputs, 128 of them features
    assert [many[0].layers[0].rate, many[1].rate] == [0.25, 0.25]
    assert resized(many[1], 7).rate == 0.25


@pytest.mark.parametrize(("kind", "norm", "normalizes"), [("tabular", None, 0), ("tabular", True, 1), ("mlp", None, 2)])
def test_norms_are_as_asked_for_or_as_the_kind_has_them(kind, norm, normalizes):
    ranker = Problem(3, 2, network=Network(kind, (4,), norm=norm)).new_ranker()
    assert sum(isinstance(layer, nn.LayerNorm) for layer in ranker.modules()) == normalizes


def test_before_training_the_default_ranker_prefers_no_document():
    ranker = Problem(3, 2).new_ranker()
    assert not ranker(torch.randn(2, 5, 3), torch.ones(2, 5, dtype=torch.bool)).any()


def test_a_document_with_larger_features_gets_another_score():
    """LayerNorm on the input cannot tell them apart: both are (1, -1) there."""
    layers = Problem(2, 1).new_layers(1)
    small, large = layers(torch.tensor([[2.0, 1.0], [20.0, 10.0]])).detach()
    assert abs(float(small - large)) > 0.01


def test_an_unknown_network_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown network 'forest': choose one of tabular, mlp, linear"):
        Network(kind="forest")
    with pytest.raises(ValueError, match=r"unknown activation 'swish': choose from elu, relu"):
        mlp(3, (2,), activation="swish")


def test_a_linear_ranker_is_linear():
    ranker = Problem(3, 2, network=Network(kind="linear")).new_ranker()
    mask = torch.ones(1, 1, dtype=torch.bool)
    one, two, none = (factor * torch.tensor([[[1.0, -2.0, 0.5]]]) for factor in (1, 2, 0))
    with torch.no_grad():
        assert_close(ranker(two, mask) - ranker(none, mask), 2 * (ranker(one, mask) - ranker(none, mask)))


def test_a_linear_ranker_normalizes_its_input_only_if_asked_to():
    def kinds(network):
        return [type(layer) for layer in Problem(n_features=3, n_positions=2, network=network).new_layers(1)]

    assert kinds(Network("mlp", hidden=(), norm=True)) == [nn.LayerNorm, nn.Linear]
    assert kinds(Network("mlp", hidden=())) == [nn.Linear]


def test_a_pointwise_score_does_not_depend_on_the_other_documents():
    ranker = Problem(3, 2, network=Network(hidden=(4,))).new_ranker()
    nn.init.normal_(ranker.layers[-1].weight)  # it starts at 0
    features = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0))
    mask = torch.ones(2, 4, dtype=torch.bool)
    with torch.no_grad():
        alone = ranker(features[:, 1:2], mask[:, 1:2])
        assert_close(ranker(features, mask)[:, 1:2], alone)


def test_a_problem_survives_json():
    network = Network(hidden=[8, 4], activation="gelu", dropout=0.2, norm=False)
    problem = Problem(7, 10, {"device": ("phone", "desk"), "age": None}, network)
    assert Problem.from_json(problem.to_json()) == problem
