"""Days in the life of a ranker: prices, traffic and the logger change, and each is named on its day."""

from dataclasses import replace

import numpy as np
import pytest

import unskew
from unskew.evaluation.differences import mean_interval
from unskew.simulation.policies import Fixed, NoisyOracle, PlackettLuce, TeamDraft

PRICE = 3  # a column that the logger does not rank by
CHANGES = ({"feature"}, {"traffic"}, {"order"}, set())  # of the second day, the third and so on, and again


class Shop:
    """A site whose judged queries, traffic and logger change from day to day."""

    def __init__(self, world):
        self.world = world
        self.raised = 0.0
        self.traffic = np.full(world.train.n_queries, 32)
        self.seed = 0

    def change(self, kinds, rng):
        self.raised += 0.3 * ("feature" in kinds)
        self.seed += "order" in kinds
        if "traffic" in kinds:
            self.traffic = rng.permutation(np.repeat([8, 56], len(self.traffic) // 2))

    def judged(self, part):
        features = part.features.copy()
        features[:, PRICE] += self.raised
        return replace(part, features=features)

    def log(self, day):
        logger = PlackettLuce(logger=NoisyOracle(strength=0.5, seed=self.seed), temperature=0.5)
        judged = self.judged(self.world.train)
        return unskew.simulate(judged, logger, "position_based", sessions=self.traffic, seed=day, progress=False).log


def quality(model, judged):
    return unskew.evaluate(model, judged, ["ndcg@10"]).values("ndcg@10")


def walk(world, n_days, steps):
    """What changed on each day, in truth and by `drift`; warm starts and training again by nDCG; the last test."""
    shop, rng = Shop(world), np.random.default_rng(0)
    options = {"hidden": (16,), "progress": False}
    log = shop.log(0)
    model = unskew.fit("dla", log, steps=steps, **options)
    named, values = [], []
    for day in range(1, n_days):
        kinds = CHANGES[(day - 1) % len(CHANGES)]
        shop.change(kinds, rng)
        before, log = log, shop.log(day)
        named.append((kinds, unskew.drift(before, log).changed))
        model = unskew.fit("dla", log, start=model, steps=steps // 3, **options)
        anew = unskew.fit("dla", log, steps=steps, **options)
        test = shop.judged(world.test)
        values.append([quality(model, test), quality(anew, test)])
    draft = TeamDraft(loggers=[NoisyOracle(strength=0.0), Fixed(ranker=model.ranker())])
    judged = shop.judged(world.valid)
    online = unskew.simulate(judged, draft, "position_based", sessions=32, seed=n_days, progress=False)
    return named, np.array(values), unskew.readout(online)


MARGIN = 0.005  # of nDCG@10, within which a warm start counts as good as training again


@pytest.mark.parametrize(("n_days", "steps"), [(2, 90), pytest.param(7, 300, marks=pytest.mark.slow)])
def test_drift_names_what_was_changed_and_a_third_of_the_steps_is_enough(world, n_days, steps):
    named, values, online = walk(world, n_days, steps)
    for kinds, found in named:
        assert {row.kind for row in found} == kinds
        assert [row.name for row in found if row.kind == "feature"] == [f"feature_{PRICE}"] * ("feature" in kinds)
    warm, anew = np.nanmean(values, axis=0)
    assert mean_interval(warm - anew)[1 if n_days == 7 else 2] > -MARGIN  # over test queries
    assert online.outcomes[0].low > 0
