"""Folders as Hugging Face writes them: config.json, safetensors, tokeniser files; mapped onto Weft's own blocks."""
