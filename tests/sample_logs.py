"""Logs by hand, for the tests of several rooms."""

import numpy as np

from unskew.data.clicks.click_log import ClickLog


def log_of(lists, clicks, sessions, features=None, **more):
    """Whole lists of these documents with these counts; features are all 0 unless given."""
    documents = np.array(lists, dtype=np.int32)
    n = int(documents.max()) + 1
    return ClickLog(
        features=np.asarray(np.zeros((n, 1)) if features is None else features, dtype=np.float32),
        versions=documents,
        mask=np.ones(documents.shape, dtype=bool),
        clicks=np.array(clicks, dtype=np.float64),
        sessions=np.array(sessions, dtype=np.float64),
        **more,
    )
