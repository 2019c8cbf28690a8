"""Using a trained model: translate, generate, classify, tag, embed, fill, score."""
