"""What a log and a judged set are: their types, how they are built, checked, stored, transformed and read in batches.

Nothing here knows methods, users or engines. Every other room takes a `ClickLog`, a `LogFolder` or a `JudgedSet`, and
training takes the batches, which are `lists`.
"""
