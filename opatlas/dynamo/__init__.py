"""Models written in PyTorch: ``torch.compile(model, backend="opatlas")``. Its modules import PyTorch."""
