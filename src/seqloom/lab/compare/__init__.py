"""Trainings compared: a grid of configurations on the same data and budget, one table and one picture."""
