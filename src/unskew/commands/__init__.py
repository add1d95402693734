"""The commands, one file each, and the application that they belong to.

A file of commands imports only what options and help need, so that `--help` and wrong options are answered at once;
what does the work is imported inside its function. `source.constant` reads defaults and names from other modules.
"""
