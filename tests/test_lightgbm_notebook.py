"""The notebook of a LightGBM user runs with the import and the class name changed, and `position=` added."""

import warnings

import pytest

NOTEBOOK = """
import joblib
import numpy as np
import pandas as pd
from lightgbm import LGBMRanker
from lightgbm import early_stopping
from sklearn.metrics import ndcg_score
from sklearn.model_selection import GroupKFold, ParameterGrid

rng = np.random.default_rng(0)
qid = np.repeat(np.arange(60), 5)
X = pd.DataFrame(rng.standard_normal((300, 3)), columns=["price", "rating", "age"])
X["brand"] = pd.Categorical(rng.choice(["acme", "bolt", "core"], 300))
position = np.tile(np.arange(5), 60)
y = (rng.random(300) < 1 / (1 + np.exp(-2 * X["rating"])) / (1 + position)).astype(int).to_numpy()
train, valid = qid < 45, qid >= 45
sizes = lambda q: np.unique(q, return_counts=True)[1]

ranker = LGBMRanker(n_estimators=30, learning_rate=0.1, num_leaves=7, random_state=0)
ranker.fit(
    X[train], y[train], group=sizes(qid[train]),
    eval_set=[(X[valid], y[valid])], eval_group=[sizes(qid[valid])], eval_at=[5], callbacks=[early_stopping(10)],
)
scores = ranker.predict(X[valid])
ndcg = ndcg_score(y[valid].reshape(-1, 5), scores.reshape(-1, 5))
importances = pd.Series(ranker.feature_importances_, index=X.columns).sort_values(ascending=False)
tried = []
for parameters in ParameterGrid({"num_leaves": [5, 7]}):
    for one, other in GroupKFold(2).split(X, groups=qid):
        model = LGBMRanker(n_estimators=10, random_state=0, **parameters)
        model.fit(X.iloc[one], y[one], group=sizes(qid[one]))
        tried.append(ndcg_score(y[other].reshape(-1, 5), model.predict(X.iloc[other]).reshape(-1, 5)))
joblib.dump(ranker, "ranker.joblib")
again = joblib.load("ranker.joblib").predict(X[valid])
"""

OURS = {
    "from lightgbm import LGBMRanker": "from unskew import UnbiasedRanker",
    "LGBMRanker(": "UnbiasedRanker(",
    "group=sizes(qid[train]),": "group=sizes(qid[train]), position=position[train],",
    "group=sizes(qid[one]))": "group=sizes(qid[one]), position=position[one])",
}
SHAP = """
import shap
shares = shap.TreeExplainer(ranker) if "LGBM" in type(ranker).__name__ else shap.Explainer(ranker.predict, X)
"""


@pytest.mark.parametrize("ours", [False, True], ids=["LGBMRanker", "UnbiasedRanker"])
@pytest.mark.long
def test_the_notebook_of_a_lightgbm_user_runs(ours, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = NOTEBOOK
    for theirs, changed in OURS.items() if ours else ():
        assert theirs in text
        text = text.replace(theirs, changed)
    names = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of either: how production ranks is not known, few rows in a leaf
        exec(text, names)
    assert names["importances"].index[0] == "rating"
    assert 0 < names["ndcg"] <= 1
    assert len(names["tried"]) == 4
    assert (names["again"] == names["scores"]).all()
