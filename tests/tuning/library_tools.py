"""The tools of ``library_worker``: the real laboratory, and of the real routes the libraries and submitted
kernels. Compilers take most of a worker's start and of a contest; what they build has tests of its own."""

from dataclasses import replace

from tuning.worker import process as worker


def make_tools() -> worker.Tools:
    tools = worker.real_tools()
    return replace(tools, routes=tuple(one for one in tools.routes if one.method in ("library", "manual")))


worker.make_tools = make_tools
