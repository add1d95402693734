"""The listwise-input ranker: a list is a set, padding is nothing, neighbors matter."""

import pytest
import torch
from torch.testing import assert_close

from unskew.networks.listwise import ListwiseRanker, hidden_keys
from unskew.networks.registry import Network, Problem

MODES = pytest.mark.parametrize("mode", ["train", "eval"])  # torch takes a faster way where nothing is learned


def new_ranker(**sizes):
    torch.manual_seed(0)
    return ListwiseRanker(3, **{"width": 8, "layers": 2, "heads": 2, "hidden": (4,), **sizes}).double()


def documents(n_lists=4, n_docs=5):
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(n_lists, n_docs, 3, generator=generator, dtype=torch.float64)
    return features, torch.arange(n_docs) < torch.tensor([[5], [3], [1], [4]])


def test_who_is_hidden_by_hand():
    mask = torch.tensor([[True, True, True], [True, True, False], [False, False, False]])
    by_hand = torch.tensor([[False, False, False], [False, False, True], [False, False, False]])
    assert torch.equal(hidden_keys(mask), by_hand)


@MODES
def test_permuting_documents_permutes_scores(mode):
    ranker, (features, _) = new_ranker(), documents()
    ranker.train(mode == "train")
    mask = torch.ones(4, 5, dtype=torch.bool)
    order = torch.tensor([3, 1, 4, 0, 2])
    with torch.no_grad():
        assert_close(ranker(features[:, order], mask), ranker(features, mask)[:, order])


def test_told_the_shown_order_it_no_longer_is_a_set():
    ranker, (features, _) = new_ranker(n_places=4), documents()  # a fifth place counts as the fourth
    mask = torch.ones(4, 5, dtype=torch.bool)
    order = torch.tensor([3, 1, 4, 0, 2])
    with torch.no_grad():
        difference = ranker(features[:, order], mask) - ranker(features, mask)[:, order]
    assert float(difference.abs().max()) > 0.01


@MODES
@pytest.mark.parametrize("garbage", [77.0, float("nan")])
def test_padding_changes_nothing(mode, garbage):
    ranker, (features, mask) = new_ranker(), documents()
    ranker.train(mode == "train")
    wide = torch.full((4, 8, 3), garbage, dtype=torch.float64)
    wide[:, :5] = torch.where(mask.unsqueeze(-1), features, garbage)
    wide_mask = torch.cat([mask, torch.zeros(4, 3, dtype=torch.bool)], 1)
    with torch.no_grad():
        scores = ranker(wide, wide_mask)[:, :5][mask]
        assert_close(scores, ranker(features, mask)[mask])
        alone = ranker(features[1:2, :3], mask[1:2, :3])
        assert_close(scores[5:8], alone[0])


@MODES
def test_a_list_of_padding_only_gives_no_nan(mode):
    ranker, (features, mask) = new_ranker(), documents()
    ranker.train(mode == "train")
    mask[2] = False
    scores = ranker(features, mask)
    assert bool(scores.isfinite().all())
    scores[mask].sum().backward()
    assert all(bool(entry.grad.isfinite().all()) for entry in ranker.parameters())


def test_a_score_depends_on_the_other_documents():
    ranker, (features, _) = new_ranker(), documents()
    features.requires_grad_()
    ranker(features, torch.ones(4, 5, dtype=torch.bool))[0, 0].backward()
    of_neighbours, of_other_lists = features.grad[0, 1:], features.grad[1:]
    assert bool((of_neighbours != 0).all())
    assert bool((of_other_lists == 0).all())


def test_the_network_is_chosen_by_name_with_its_layers_and_heads():
    ranker = Problem(3, 2, network=Network("listwise", hidden=(32, 16, 8), layers=3, heads=8)).new_ranker()
    assert ranker.expand.out_features == 64
    assert len(ranker.encoder.layers) == 3
    assert ranker.encoder.layers[0].self_attn.num_heads == 8
    sizes = [layer.out_features for layer in ranker.score if isinstance(layer, torch.nn.Linear)]
    assert sizes == [32, 16, 8, 1]


def test_a_pointwise_network_can_be_expanded_too():
    ranker = Problem(3, 2, network=Network("mlp", (32, 16, 8), expand=64)).new_ranker()
    sizes = [(layer.in_features, layer.out_features) for layer in ranker.layers if isinstance(layer, torch.nn.Linear)]
    assert sizes == [(3, 64), (64, 32), (32, 16), (16, 8), (8, 1)]


def test_heads_that_do_not_divide_the_width_are_refused():
    with pytest.raises(ValueError, match="3 heads do not divide a width of 8"):
        new_ranker(heads=3)
    with pytest.raises(ValueError, match="at least one layer"):
        new_ranker(layers=0)
