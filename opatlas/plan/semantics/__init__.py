"""What is known of the frameworks' semantics: where their operators give other values than ONNX Runtime's,
which of that a model can meet, and so who may run it."""
