"""A swarm that reads documents: the library's example, and what `noetic-ray demo` runs.

Start with `swarm.py`, the agents. `tools.py` is what their model may call, `model.py` a model that
needs no provider, `documents.py` and `shares.py` what there is to read and who reads which part,
`report.py` what comes out.
"""

from __future__ import annotations
