"""Kernels in C, built with the package. Each stands behind a function whose open form is in `nn`."""

from seqloom.native.block import BlockWeights, NormWeights, PackedBlock, PackedLinear, PackedStack
from seqloom.native.library import KernelInfo, checksum, describe, serves, threads

__all__ = [
    "BlockWeights",
    "KernelInfo",
    "NormWeights",
    "PackedBlock",
    "PackedLinear",
    "PackedStack",
    "checksum",
    "describe",
    "serves",
    "threads",
]
