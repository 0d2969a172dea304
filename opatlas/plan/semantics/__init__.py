"""Where frameworks give other values than ONNX Runtime, which of these cases a model can meet, and which
frameworks may therefore run it."""
