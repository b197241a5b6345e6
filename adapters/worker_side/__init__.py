"""The worker's side of Day0: runs wherever a stack lives.

Needs Python 3.9 or newer, the standard library, torch and safetensors, and nothing else of Day0. A stack is
one class derived from `Stack` in a module of its own; docs/targets.md says how to write one.
"""

from day0_worker.stack import ERROR_KINDS, NodeRun, Stack, StackError

__all__ = ["ERROR_KINDS", "NodeRun", "Stack", "StackError"]
