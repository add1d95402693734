from dataclasses import replace

import numpy as np
import pytest
import torch

from unskew.lists import ClickedLists, Distinct, Lists, shared_tensor


def one_clicked_list():
    return ClickedLists(
        features=torch.ones(1, 2, 3),
        mask=torch.tensor([[True, False]]),
        positions=torch.tensor([[0, 0]]),
        clicks=torch.tensor([[2.0, 0.0]]),
        sessions=torch.tensor([5.0]),
        bias={"device": torch.tensor([[1, 0]])},
    )


def test_moving_lists_moves_every_tensor_and_keeps_what_is_absent_absent():
    moved = one_clicked_list().to("meta")
    tensors = (moved.features, moved.mask, moved.positions, moved.clicks, moved.sessions, moved.bias["device"])
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    assert moved.policy_scores is None
    assert isinstance(moved, ClickedLists)


def two_orders():
    """Rows 1, 2, 3 in one order and two of them in another, then padding."""
    rows = torch.tensor([[1.0], [2.0], [3.0], [0.0]])
    places = torch.tensor([[0, 1, 2], [2, 0, 3]])
    return Lists(None, mask=places < 3, distinct=Distinct(rows, places))


class Doubled:
    pointwise = True

    def __init__(self):
        self.seen = []

    def __call__(self, features, mask):
        self.seen.append(tuple(mask.shape))
        return 2 * features.squeeze(-1)


def test_a_pointwise_network_runs_once_per_distinct_document():
    network = Doubled()
    assert two_orders().apply(network).tolist() == [[2.0, 4.0, 6.0], [6.0, 2.0, 0.0]]
    assert network.seen == [(1, 4)]


def test_a_listwise_network_sees_the_lists():
    network = Doubled()
    network.pointwise = False
    assert two_orders().apply(network).tolist() == [[2.0, 4.0, 6.0], [6.0, 2.0, 0.0]]
    assert network.seen == [(2, 3)]


def test_the_gradient_of_a_document_is_the_sum_over_its_places():
    lists = two_orders()
    lists.distinct.rows.requires_grad_()
    vectors = lists.per_document(lambda features: torch.cat([features, features**2], -1))
    (vectors * lists.mask.unsqueeze(-1)).sum().backward()
    assert lists.distinct.rows.grad.flatten().tolist() == [2 * (1 + 2 * 1), 1 + 2 * 2, 2 * (1 + 2 * 3), 0.0]


def test_changed_features_are_no_longer_shared():
    lists = two_orders()
    kept = replace(lists, mask=lists.mask)
    changed = replace(lists, features=lists.features + torch.arange(3.0).unsqueeze(-1))
    assert kept.distinct is lists.distinct
    assert changed.distinct is None
    assert changed.apply(Doubled())[1].tolist() == [6.0, 4.0, 4.0]


def test_a_tensor_of_a_writable_array_shares_its_memory():
    array = np.zeros(3, dtype=np.float32)
    tensor = shared_tensor(array)
    array[1] = 7
    assert tensor.tolist() == [0, 7, 0]


def test_a_tensor_of_a_file_mapped_read_only_costs_no_copy_and_no_warning(tmp_path):
    np.save(tmp_path / "features.npy", np.arange(6, dtype=np.float32).reshape(2, 3))
    array = np.load(tmp_path / "features.npy", mmap_mode="r")
    tensor = shared_tensor(array)
    assert tensor.data_ptr() == array.__array_interface__["data"][0]
    assert tensor.tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (0,)])
def test_empty_read_only_arrays_become_empty_tensors(shape):
    array = np.zeros(shape, dtype=np.float32)
    array.setflags(write=False)
    assert tuple(shared_tensor(array).shape) == shape


def test_the_memory_of_a_read_only_array_outlives_the_array():
    array = np.full(1000, 3.0, dtype=np.float32)
    array.setflags(write=False)
    tensor = shared_tensor(array)
    del array
    _ = [np.zeros(1000, dtype=np.float32) for _ in range(50)]  # would take the memory if it were free
    assert tensor.sum().item() == 3000.0
