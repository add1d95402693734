"""A world to learn in: policies that show, people who look and click."""
