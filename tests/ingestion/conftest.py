"""Tables of these tests have few sessions: their levels are kept."""

import pytest

from unskew.ingestion import users


@pytest.fixture(autouse=True)
def rare_levels_are_kept(monkeypatch):
    monkeypatch.setattr(users, "LEAST_SESSIONS", 1)
