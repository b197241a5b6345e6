"""Tensor files: safetensors and GGUF, as headers first and bytes on demand."""
