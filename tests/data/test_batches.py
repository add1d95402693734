"""Batches: the same gradient from counts as from single sessions, and the same batch from the same step."""

import threading
import weakref
from dataclasses import replace
from itertools import chain

import numpy as np
import pyarrow as pa
import pytest
import torch

from unskew.data.clicks.batches import ClickBatches, JudgedBatches
from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.row_fields import BiasColumn
from unskew.data.clicks.shard_batches import ShardBatches
from unskew.data.clicks.storage import open_log, write_log
from unskew.data.judged.judged_set import JudgedSet
from unskew.methods import losses
from unskew.processes import Share


def session_table(n_sessions=400, n_queries=9, seed=0):
    """Sessions of lists of 1 to 4 documents in two orders each; feature 0 names the document."""
    rng = np.random.default_rng(seed)
    rows = []
    for session in range(n_sessions):
        query = int(rng.integers(n_queries))
        size = 1 + query % 4
        order = np.arange(size) if rng.random() < 0.7 else np.arange(size)[::-1]
        for place, document in enumerate(order):
            features = (query * 10.0 + document, np.sin(query * 7 + document))
            rows.append((session, query, int(document), place, int(rng.random() < 0.4), *features))
    names = ("session", "query", "document", "position", "click", "name", "sine")
    return pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))


def single_sessions(table):
    """The same sessions, none counted together: every session is a query of its own."""
    return ClickLog.from_table(table.set_column(1, "query", table["session"]))


def gradient(batches, loss):
    weights = torch.tensor([0.3, -1.2], dtype=torch.float64, requires_grad=True)
    for lists in batches.all(batch_size=7):
        features = lists.features.double() / torch.tensor([100.0, 1.0], dtype=torch.float64)
        loss(features @ weights, lists).backward()
    return weights.grad


def softmax(scores, lists):
    return losses.softmax(scores, lists.clicks.double(), lists.mask)


def sigmoid(scores, lists):
    return losses.sigmoid(scores, lists.clicks.double(), lists.sessions.double(), lists.mask)


@pytest.mark.parametrize("loss", [softmax, sigmoid])
@pytest.mark.parametrize("detail", ["counts", "patterns"])
def test_counted_lists_give_the_gradient_of_single_sessions(loss, detail):
    table = session_table()
    counted, single = ClickLog.from_table(table), single_sessions(table)
    assert (counted.n_lists, single.n_lists) == (15, 400)  # 6 queries in two orders, 3 of one document
    expected = gradient(ClickBatches(single), loss)
    torch.testing.assert_close(gradient(ClickBatches(counted, detail=detail), loss), expected, rtol=0, atol=1e-10)


def test_pairs_are_the_sessions_in_which_one_was_clicked_and_the_other_not():
    log = ClickLog.from_table(session_table())
    (lists,) = ClickBatches(log, detail="pairs").all()
    expected = np.zeros((log.n_lists, log.n_docs, log.n_docs))
    for row, pattern, sessions in zip(log.patterns.lists, log.patterns.clicks, log.patterns.sessions, strict=True):
        for i in np.flatnonzero(log.mask[row]):
            for j in np.flatnonzero(log.mask[row]):
                expected[row, i, j] += sessions * pattern[i] * (1 - pattern[j])
    assert np.array_equal(lists.pairs.numpy(), expected)


def test_pairs_of_a_batch_belong_to_its_lists_in_any_order():
    batches = ClickBatches(ClickLog.from_table(session_table()), detail="pairs")
    (everything,) = batches.all()
    assert torch.equal(batches.rows(np.array([5, 0, 5])).pairs, everything.pairs[[5, 0, 5]])


def test_pairs_of_graded_feedback_weigh_the_clicked_one():
    log = ClickLog.from_arrays(np.zeros((3, 1)), [4.0, 0.0, 2.5], group=[3], graded=True)
    (lists,) = ClickBatches(log, detail="pairs").all()
    assert lists.pairs.tolist() == [[[0, 4, 0], [0, 0, 0], [0, 2.5, 0]]]


def test_patterns_weigh_what_their_list_weighs():
    log = ClickLog.from_table(session_table())
    batches = ClickBatches(log, detail="patterns")
    sessions = torch.cat([lists.sessions for lists in batches.all(3)])
    assert sessions.sum().item() == log.n_sessions == 400
    clicks = sum(lists.clicks.sum().item() for lists in batches.all(3))
    assert clicks == log.n_clicks


def test_padding_is_zero_whatever_it_points_at():
    log = replace(ClickLog.from_table(session_table()), policy_scores=None)
    (lists,) = ClickBatches(log).all()
    assert not lists.mask.all()
    for values in (lists.features.abs().sum(-1), lists.clicks, lists.positions):
        assert (values[~lists.mask] == 0).all()
    assert torch.equal(lists.features[..., 0][lists.mask], torch.from_numpy(log.features[log.documents[log.mask], 0]))


def test_types_are_those_of_clicked_lists_whatever_the_log_holds():
    log = ClickLog.from_table(session_table())
    shape = log.documents.shape
    log = replace(
        log,
        policy_scores=np.ones(shape),
        sessions=log.sessions.astype(np.float64),
        bias={
            "device": BiasColumn(np.zeros(log.n_lists, dtype=np.int8), ("desk",)),
            "height": BiasColumn(np.ones(shape)),
        },
    )
    lists = ClickBatches(log)(0)
    assert {lists.features.dtype, lists.clicks.dtype, lists.sessions.dtype, lists.policy_scores.dtype} == {
        torch.float32
    }
    assert (lists.positions.dtype, lists.bias["device"].dtype) == (torch.int64, torch.int64)
    assert lists.bias["height"].dtype == torch.float32
    assert lists.bias["device"].shape == lists.mask.shape


def test_an_epoch_holds_every_list_once_in_batches_of_nearly_equal_size():
    batches = ClickBatches(ClickLog.from_table(session_table()), batch_size=4)
    assert batches.per_epoch == 4  # 15 lists
    first = [names_of(batches(step)) for step in range(4)]
    second = [names_of(batches(step)) for step in range(4, 8)]
    everything = sorted(name for lists in batches.all() for name in names_of(lists))
    assert sorted(chain(*first)) == sorted(chain(*second)) == everything
    assert sorted(len(batch) for batch in first) == [3, 4, 4, 4]
    assert first != second


def names_of(lists):
    """Lists distinguished by their documents, clicks and sessions."""
    numbers = torch.cat([lists.features[..., 0], lists.clicks, lists.sessions.unsqueeze(-1)], dim=1)
    return [tuple(value for value in row if value) for row in numbers.tolist()]


def test_a_step_is_found_again_without_those_before_it():
    log = ClickLog.from_table(session_table())
    walked = ClickBatches(log, batch_size=3, seed=4)
    steps = [names_of(walked(step)) for step in range(20)]
    assert names_of(ClickBatches(log, batch_size=3, seed=4)(13)) == steps[13]
    assert names_of(ClickBatches(log, batch_size=3, seed=5)(13)) != steps[13]


def orders_log(n_lists_of_queries, n_docs=3):
    """So many lists of each query, all of the same documents in another order or with other clicks."""
    queries = np.repeat(np.arange(len(n_lists_of_queries)), n_lists_of_queries)
    rng = np.random.default_rng(0)
    places = np.stack([rng.permutation(n_docs) for _ in queries])
    return ClickLog(
        features=np.arange(n_docs * len(n_lists_of_queries), dtype=np.float32)[:, None],
        versions=(n_docs * queries[:, None] + places).astype(np.int32),
        mask=np.ones(places.shape, dtype=bool),
        clicks=np.zeros(places.shape, dtype=np.float32),
        sessions=np.ones(len(queries), dtype=np.float32),
    )


def queries_of(lists):
    return (lists.features[:, 0, 0] // 3).long()


def test_lists_of_a_query_stay_together_and_their_documents_stand_once():
    batches = ClickBatches(orders_log([4] * 30), batch_size=40)
    for step in range(6):
        lists = batches(step)
        queries = queries_of(lists).unique()
        assert len(queries) == 10  # 40 lists of 4 orders each
        assert len(lists.distinct.rows) == 30
        assert torch.equal(lists.features, lists.distinct.rows[lists.distinct.places])
    assert sorted(queries_of(batches(0)).tolist()) != sorted(queries_of(batches(3)).tolist())


def test_a_query_of_many_lists_is_spread_over_batches():
    log = orders_log([200, *([1] * 200)])
    batches = ClickBatches(log, batch_size=50, together=5)
    for epoch in range(3):
        of_head = [int((queries_of(batches(step)) == 0).sum()) for step in range(8 * epoch, 8 * epoch + 8)]
        assert sum(of_head) == 200
        assert max(of_head) < 50  # 25 on average, in groups of 5
    alone = ClickBatches(log, batch_size=50, together=1)
    assert sorted(torch.cat([queries_of(alone(step)) for step in range(8)]).tolist()) == sorted(log.queries.tolist())


def test_a_pass_by_query_holds_every_row_under_its_number():
    log = orders_log([3, 2, 4]).select([8, 0, 3, 1, 5, 2, 4, 7, 6])
    batches = ClickBatches(log)
    found = list(batches.by_query(batch_size=3))
    assert [queries_of(lists).tolist() for _, lists in found] == [[0, 0, 0], [1, 1, 2], [2, 2, 2]]
    for rows, lists in found:
        assert torch.equal(lists.features, batches.rows(rows).features)
    assert sorted(np.concatenate([rows for rows, _ in found])) == list(range(9))


def test_documents_that_stand_in_one_list_only_cost_no_search_for_others():
    assert ClickBatches(orders_log([1] * 10))(0).distinct is None


def test_details_that_a_log_does_not_have_are_refused():
    log = ClickLog.from_table(session_table(), joint=False)
    for detail in ("pairs", "patterns"):
        with pytest.raises(ValueError, match=f"learns from {detail} of clicks.*joint=True"):
            ClickBatches(log, detail=detail)


def test_empty_logs_and_empty_batches_are_refused():
    log = ClickLog.from_table(session_table())
    with pytest.raises(ValueError, match="the log is empty"):
        ClickBatches(log.select([]))
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        ClickBatches(log, batch_size=0)


def test_logs_without_features_give_batches_without_features():
    log = ClickLog.from_table(session_table(), features=[])
    for detail in ("counts", "pairs", "patterns"):
        assert ClickBatches(log, detail=detail)(0).features.shape[-1] == 0


def test_arrays_mapped_read_only_are_read_without_a_warning():
    log = ClickLog.from_table(session_table())
    for array in (log.features, log.mask, log.documents, log.clicks, log.patterns.clicks):
        array.setflags(write=False)
    assert ClickBatches(log, detail="pairs")(0).n_lists == 15


def test_counts_beyond_float32_are_kept_in_the_log_and_rounded_in_batches():
    log = ClickLog.from_arrays(np.zeros((1, 1)), [2**24 + 1], group=[1], sessions=[2**24 + 1])
    assert log.n_clicks == 2**24 + 1
    assert ClickBatches(log)(0).clicks.item() == 2**24


def test_judged_batches_hold_every_query_once_an_epoch():
    judged = JudgedSet.from_arrays(np.arange(12.0).reshape(12, 1), np.zeros(12), [3, 1, 2, 6])
    batches = JudgedBatches(judged, batch_size=3)
    assert batches.per_epoch == 2
    rows = torch.cat([batches(step).features[batches(step).mask].squeeze(-1) for step in (4, 5)])
    assert sorted(rows.tolist()) == list(range(12))
    with pytest.raises(ValueError, match="there are no lists"):
        JudgedBatches(judged.select([]))


@pytest.fixture
def folder(tmp_path):
    return open_log(write_log(ClickLog.from_table(session_table()), tmp_path / "log", n_shards=3))


@pytest.mark.parametrize("detail", ["counts", "pairs", "patterns"])
def test_an_epoch_of_shards_holds_what_the_whole_log_holds(folder, detail):
    batches = ShardBatches(folder, batch_size=4, detail=detail)
    whole = ClickBatches(ClickLog.from_table(session_table()), detail=detail)
    everything = sorted(name for lists in whole.all() for name in names_of(lists))
    for epoch in range(3):
        steps = range(epoch * batches.per_epoch, (epoch + 1) * batches.per_epoch)
        assert sorted(name for step in steps for name in names_of(batches(step))) == everything
    assert sorted(name for lists in batches.all(5) for name in names_of(lists)) == everything


def test_a_step_of_shards_is_found_again_without_those_before_it(folder):
    walked = ShardBatches(folder, batch_size=2, seed=3)
    steps = [names_of(walked(step)) for step in range(4 * walked.per_epoch)]
    jumping = ShardBatches(folder, batch_size=2, seed=3)
    for step in (17, 3, 30, 0, 29, 31):
        assert names_of(jumping(step)) == steps[step]
    assert names_of(ShardBatches(folder, batch_size=2, seed=4)(17)) != steps[17]


def test_shards_come_in_another_order_every_epoch(folder):
    batches = ShardBatches(folder, batch_size=1000)
    assert batches.per_epoch == 3
    epochs = {tuple(names_of(batches(3 * epoch + place))[0][0] for place in range(3)) for epoch in range(8)}
    assert len(epochs) > 1


def test_passing_over_all_rows_between_steps_changes_no_step(folder):
    expected = [names_of(ShardBatches(folder, batch_size=4)(step)) for step in (0, 1)]
    batches = ShardBatches(folder, batch_size=4)
    found = [names_of(batches(0))]
    _ = list(batches.all())
    assert [*found, names_of(batches(1))] == expected


class CountingFolder:
    """A folder that knows how many of its shards are alive, and who read them."""

    def __init__(self, folder):
        self.folder, self.alive, self.most, self.readers, self.n_read = folder, 0, 0, set(), 0
        self.numbers = set()
        self.joint, self.counts = folder.joint, folder.counts

    def shard(self, number):
        log = self.folder.shard(number)
        self.alive, self.n_read = self.alive + 1, self.n_read + 1
        self.most = max(self.most, self.alive)
        self.numbers.add(number)
        self.readers.add(threading.current_thread().name)
        weakref.finalize(log, self.forget)
        return log

    def forget(self):
        self.alive -= 1


def test_at_most_two_shards_are_in_memory_and_all_are_read_in_the_background(folder):
    counting = CountingFolder(folder)
    batches = ShardBatches(counting, batch_size=2)
    for step in range(5 * batches.per_epoch):
        batches(step)
    for _ in batches.all():
        pass
    assert counting.most == 2
    assert all(name.startswith("shards") for name in counting.readers)
    assert counting.n_read <= 5 * 3 + 3 + 1  # each shard once an epoch and once for all, and one read ahead


def test_a_process_reads_the_shards_of_its_lanes_and_holds_two_of_each(tmp_path):
    folder = open_log(write_log(ClickLog.from_table(session_table()), tmp_path / "log", n_shards=9))
    for lanes_of_each in ([3], [2, 1]):
        read = []
        for number, n_lanes in enumerate(lanes_of_each):
            counting = CountingFolder(folder)
            batches = ShardBatches(counting, batch_size=6, lanes=3)
            for step in range(3 * batches.per_epoch):
                batches(step, Share(number, len(lanes_of_each)))
            assert counting.most <= 2 * n_lanes
            read += counting.numbers
        assert sorted(read) == list(range(9))


def test_a_single_shard_is_read_once(tmp_path):
    counting = CountingFolder(open_log(write_log(ClickLog.from_table(session_table()), tmp_path / "log")))
    batches = ShardBatches(counting, batch_size=4)
    for step in range(3 * batches.per_epoch):
        batches(step)
    assert counting.n_read == 1


def test_prepare_is_applied_to_every_shard(folder):
    doubled = ShardBatches(folder, batch_size=4, prepare=lambda log: replace(log, features=2 * log.features))
    plain = ShardBatches(folder, batch_size=4)
    for step in range(plain.per_epoch):
        assert torch.equal(doubled(step).features, 2 * plain(step).features)


def test_prepare_must_keep_every_list(folder):
    with pytest.raises(ValueError, match="it must keep every list"):
        ShardBatches(folder, prepare=lambda log: log.select([0]))(0)


def test_shards_without_lists_are_passed_over(tmp_path):
    log = ClickLog.from_table(session_table())
    folder = open_log(write_log(log.select(log.queries == 4), tmp_path / "log", n_shards=3))
    batches = ShardBatches(folder)
    assert folder.counts("lists").count(0) == 2
    assert batches.per_epoch == 1
    assert batches(5).sessions.sum() == log.select(log.queries == 4).n_sessions
    nothing = open_log(write_log(log.select([]), tmp_path / "nothing"))
    with pytest.raises(ValueError, match="the log is empty"):
        ShardBatches(nothing)


def test_a_damaged_shard_is_named_when_it_is_needed(folder):
    (folder.path / "shard-00001.lists.parquet").write_bytes(b"")
    batches = ShardBatches(folder)
    with pytest.raises(ValueError, match=r"shard-00001\.lists\.parquet cannot be read"):
        list(batches.all())


def test_shards_refuse_details_that_they_do_not_have(tmp_path):
    log = ClickLog.from_table(session_table(), joint=False)
    folder = open_log(write_log(log, tmp_path / "log"))
    with pytest.raises(ValueError, match="learns from pairs of clicks"):
        ShardBatches(folder, detail="pairs")
