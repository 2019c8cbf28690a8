"""Search over a step function; it knows no model class."""
