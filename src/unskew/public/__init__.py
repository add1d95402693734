"""The public functions: each command as a function that takes paths or objects, and shows how far it is."""
