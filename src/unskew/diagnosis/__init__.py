"""What a log can tell: estimators, what they mean together, which methods to train, and the page that shows it."""
