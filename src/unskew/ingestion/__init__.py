"""Event tables in: impressions, single events or User Behavior Insights, of any size, into click log shards.

    sources ─ engines ─> a table ─ columns, events ─> impressions ─ features, group ─> patterns ─ shards ─> ClickLog

Grouping and counting are Ibis expressions, written once for DuckDB and Spark. A *showing* is a session and a query
together: one result page. A *pattern* is a list as it was shown with the clicks of one session.
"""
