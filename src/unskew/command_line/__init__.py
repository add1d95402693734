"""The command line as data: which function a command calls, and what each of its options says.

Options and their help are read from the source of the functions, so nothing that is slow to import is imported. Every
room may import it, to print the command that repeats a result; `commands` runs what is declared here.
"""
