"""Search over a step function: knows no model class."""
