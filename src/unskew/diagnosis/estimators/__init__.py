"""What a log can tell: examination curve, with intervals, or the reason why not."""
