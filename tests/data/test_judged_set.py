import numpy as np
import pytest

from unskew.data.judged.judged_set import JudgedSet, padded_rows, ragged_rows


def three_queries():
    """Queries of 2, 1 and 3 documents; the one feature is the number of the row."""
    return JudgedSet.from_arrays(np.arange(6.0).reshape(6, 1), [0, 1, 2, 3, 4, 0], [2, 1, 3], name="three")


def test_sizes_and_ids_follow_from_the_groups():
    judged = three_queries()
    assert (judged.n_queries, judged.n_documents, judged.n_features, judged.max_grade) == (3, 6, 1, 4.0)
    assert judged.sizes.tolist() == [2, 1, 3]
    assert judged.document_ids.tolist() == [0, 1, 0, 0, 1, 2]
    assert repr(judged) == "JudgedSet(three: 3 queries, 6 documents, 1 features)"


def test_lists_are_padded_with_zeros():
    lists = three_queries().lists([0, 2])
    assert lists.mask.tolist() == [[True, True, False], [True, True, True]]
    assert lists.features.squeeze(-1).tolist() == [[0, 1, 0], [3, 4, 5]]
    assert lists.grades.tolist() == [[0, 1, 0], [3, 4, 0]]


def test_lists_can_be_wider_than_the_longest_query():
    assert three_queries().lists(n_docs=5).mask.sum(1).tolist() == [2, 1, 3]


@pytest.mark.parametrize("choice", [[2, 0], [True, False, True]])
def test_queries_are_chosen_by_number_in_the_order_given_or_by_mask(choice):
    chosen = three_queries().select(choice)
    expected = [2, 0] if choice == [2, 0] else [0, 2]
    assert chosen.query_ids.tolist() == expected
    assert chosen.sizes.tolist() == [three_queries().sizes[query] for query in expected]


def test_a_mask_of_the_wrong_length_is_refused():
    with pytest.raises(ValueError, match="there are 3 queries"):
        three_queries().select([True, False])


def test_batches_hold_every_query_once_and_at_most_so_many_documents():
    judged = JudgedSet.from_arrays(np.zeros((45, 1)), np.zeros(45), np.arange(1, 10))
    batches = list(judged.batches(max_documents=16))
    assert sorted(np.concatenate([queries for queries, _ in batches]).tolist()) == list(range(9))
    assert all(lists.mask.numel() <= 16 for _, lists in batches)


def test_a_query_longer_than_a_batch_is_a_batch_of_its_own():
    judged = JudgedSet.from_arrays(np.zeros((5, 1)), np.zeros(5), [5])
    assert [lists.mask.numel() for _, lists in judged.batches(max_documents=2)] == [5]


def test_features_mapped_read_only_are_read_without_a_warning(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((2, 1), dtype=np.float32))
    judged = JudgedSet(np.load(tmp_path / "x.npy", mmap_mode="r"), np.zeros(2, dtype=np.float32), np.array([0, 2]))
    assert judged.lists().features.sum().item() == 2


def test_sets_without_features_or_queries_are_possible():
    assert JudgedSet.from_arrays(np.zeros((2, 0)), [0, 1], [2]).lists().features.shape == (1, 2, 0)
    empty = JudgedSet.from_arrays(np.zeros((0, 3)), [], [])
    assert (empty.n_queries, empty.max_grade, list(empty.batches())) == (0, 0.0, [])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros((3, 1)), [0, 0, 0], [2]), "add up to 2, but there are 3 rows"),
        ((np.zeros((3, 1)), [0, 0, 0], [5, -2]), "the group sizes must cover every row once"),
        ((np.zeros((3, 1)), [0, 0, 0], [1.5, 1.5]), "group must be whole numbers"),
        ((np.zeros((3, 1)), [0, 0], [3]), "pass one per row"),
        ((np.zeros((2, 1)), [0, np.nan], [2]), "grade of row 1 is nan"),
        ((np.zeros(3), [0, 0, 0], [3]), "features must be a matrix"),
    ],
)
def test_sets_that_cannot_be_true_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        JudgedSet.from_arrays(*arguments)


def test_rows_of_chosen_groups():
    offsets = np.array([0, 2, 2, 5])
    rows, new_offsets = ragged_rows(offsets, np.array([2, 1, 0]))
    assert rows.tolist() == [2, 3, 4, 0, 1]
    assert new_offsets.tolist() == [0, 3, 3, 5]
    padded, mask = padded_rows(offsets, np.array([1, 2]))
    assert mask.tolist() == [[False] * 3, [True] * 3]
    assert padded[1].tolist() == [2, 3, 4]


def test_documents_can_be_left_out_and_with_them_their_query():
    judged = JudgedSet.from_arrays([[1.0], [2.0], [3.0]], [0, 1, 2], [2, 1])
    kept = judged.select_documents(np.array([False, True, False]))
    assert (kept.n_queries, kept.features.tolist(), kept.grades.tolist()) == (1, [[2.0]], [1.0])
