"""Features that are the position, as `train` refuses them."""

import numpy as np
import pyarrow as pa
import pytest

from unskew.data.clicks.click_log import ClickLog
from unskew.data.clicks.log_checks import position_features, refuse_positions


def log_with(feature):
    """Ten queries of four documents, each at one position; the feature as a function of position and document."""
    place, query = np.tile(np.arange(4), 10), np.repeat(np.arange(10), 4)
    columns = {"session": query, "query": query, "document": 4 * query + place, "position": place}
    columns |= {"click": (place == 0).astype(int), "price": np.sqrt(7.0 * query + place), "tile": feature(place, query)}
    return ClickLog.from_table(pa.table(columns), features=["price", "tile"])


def test_a_function_of_the_position_is_refused():
    log = log_with(lambda place, _: 100.0 - 3 * place)
    assert position_features(log) == ["tile"]
    with pytest.raises(ValueError, match="feature 'tile' is the position, or a function of it"):
        refuse_positions(log)


@pytest.mark.parametrize("feature", [lambda place, query: place + (query == 3) * 1.0, lambda place, _: 0.0 * place])
def test_a_value_that_another_document_of_the_position_does_not_have_is_no_position(feature):
    assert position_features(log_with(feature)) == []
