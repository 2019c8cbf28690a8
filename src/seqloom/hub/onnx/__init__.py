"""Models of ours as ONNX graphs."""
