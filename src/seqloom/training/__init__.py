"""The training loop: from batches to a trained model."""
