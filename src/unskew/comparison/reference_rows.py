"""Reference rows in the tables of an experiment: the logging policy itself, and LightGBM.

LightGBM is the usual choice: plain, and with positions, with which it corrects for position bias. It learns from the
same simulated log, and judged validation queries choose the number of its trees, as they choose the state of our
methods.
"""

from __future__ import annotations

import numpy as np

from unskew.comparison.outside import LIGHTGBM, train_lightgbm
from unskew.comparison.rows import Outcome
from unskew.comparison.sources import Definition, judged_split, policy_of, simulation_of
from unskew.comparison.tasks import Task, evaluate_run
from unskew.data.judged.judged_set import JudgedSet
from unskew.evaluation.evaluate import evaluate_scorer


def measure_logger(definition: Definition) -> Outcome:
    """The ranking on which the clicks were collected; the first of several logging policies."""
    policy = policy_of(definition["data"], definition["simulation"]["policy"])

    def scores(judged: JudgedSet) -> np.ndarray:
        return policy.scores(judged).reshape(judged.n_documents, -1)[:, 0]

    return _outcome(definition, scores(judged_split(definition, "valid")), scores(judged_split(definition, "test")))


def measure_trees(definition: Definition) -> Outcome:
    """LightGBM, trained on the same clicks as our methods."""
    ranker = train_lightgbm(
        simulation_of(definition).log,
        position=LIGHTGBM[definition["row"]],
        seed=definition["simulation_seed"],
        validate=judged_split(definition, "valid"),
    )
    return _outcome(definition, ranker, ranker)


def _outcome(definition: Definition, on_valid: object, on_test: object) -> Outcome:
    main = definition["metric"]
    valid = evaluate_scorer(on_valid, judged_split(definition, "valid"), [main.partition(":")[0]])  # type: ignore[arg-type]
    result = evaluate_run(definition, on_test, judged_split(definition, "test"))
    per_query = {name: result.values(name) for name in definition["metrics"]}
    return Outcome(per_query, result.query_ids, {"validation": valid.mean(main.partition(":")[0])})


ROW_TASKS: dict[str, Task] = {"logger": measure_logger, "lightgbm": measure_trees, "lightgbm_position": measure_trees}
