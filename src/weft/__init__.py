"""Weft: from plain text to your own sequence model.

Importing this package is cheap: torch is imported by the parts that compute, when they are asked to.
"""

__version__ = "0.1.0"
