"""Diagnosis of a log: estimators, their interpretation, advice on methods, and the report."""
