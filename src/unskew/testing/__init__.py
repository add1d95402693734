"""Testing: what holds of every method, to be run on a class of your own.

>>> from unskew.methods.bias.naive import Naive
>>> from unskew.testing import check_method
>>> check_method(Naive)
"""

from unskew.testing.method_checks import CHECKS, check_method

__all__ = ["CHECKS", "check_method"]
