"""The commands, one file each, and the application that they belong to."""
