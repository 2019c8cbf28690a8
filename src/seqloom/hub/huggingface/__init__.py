"""Folders as Hugging Face writes them: config.json, safetensors, tokeniser files; mapped onto Seqloom's own blocks."""
