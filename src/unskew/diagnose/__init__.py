"""The diagnosis of a log: all parts of `unskew.diagnosis`, what they mean, and which methods to train."""

from unskew.diagnose.assemble import Diagnosis, Refusal, diagnose

__all__ = ["Diagnosis", "Refusal", "diagnose"]
