"""Kind ``cuda-module``: device code with a launch plan as data. The host's side is ours."""
