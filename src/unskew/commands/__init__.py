"""What a terminal adds to the functions: `app` runs every declared command, the other modules what is special to some.

Only `cli` imports it. A module here is imported when one of its commands is called.
"""
