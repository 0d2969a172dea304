"""Kind ``cuda-module``: device code with a launch plan as data. All host code is ours."""
