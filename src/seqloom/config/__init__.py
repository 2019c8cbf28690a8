"""What a user may write: strict sections, each default in one place."""
