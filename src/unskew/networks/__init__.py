"""Networks: rankers of documents, models of being seen, running estimates."""
