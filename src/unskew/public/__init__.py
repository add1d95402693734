"""The public functions: every command as a function that takes paths or objects and shows its progress."""
