"""Looking inside a model."""
