"""Networks: rankers of documents, models of examination, running estimates."""
