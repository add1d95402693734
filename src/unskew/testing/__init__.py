"""Testing: what holds of every method, to be run on a class of your own.

It may import everything up to training, and nothing of unskew imports it. It hands on the reasons of what a class is
exempt from; a check that fails is an `AssertionError`.

>>> from unskew.methods.bias.naive import Naive
>>> from unskew.testing import check_method
>>> check_method(Naive)
"""

from unskew.testing.method_checks import CHECKS, check_method

__all__ = ["CHECKS", "check_method"]
