"""Where the layers built in stand in the window; smaller slots come first.

A layer of your own takes any number; layers with equal slots keep the order they were given in.
"""

from __future__ import annotations

REMINDER = 80
STEERING = 90
SCRATCHPAD = 100
INSTRUCTIONS = 105
TOOL_CALLS = 110
TEMPORAL = 120
TASK_STATE = 130
ENTITY = 150
OBSERVATIONS = 200
PROCEDURAL = 250
HISTORY = 275
EPISODIC = 300
RAG = 350
SEMANTIC_RECALL = 400
