"""Kernels in C, built with the package. Each is behind a function whose plain PyTorch form is in `nn`."""
