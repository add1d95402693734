"""What a log can tell: curves of being seen, with intervals, or the reason why not."""
