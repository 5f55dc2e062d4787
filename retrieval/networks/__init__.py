"""Small transformers without torch: inputs, ONNX graphs, sessions, and vectors that are kept."""
