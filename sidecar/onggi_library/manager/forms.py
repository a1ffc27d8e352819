"""A value's form as text and back, for managers whose steps outlive their process."""

from __future__ import annotations

from typing import Any, Final

import torch

from onggi_library.manager.values import Branch, Form, Leaf, Tree

_KINDS: Final = {"tuple": tuple, "list": list, "dict": dict}
_KEYS: Final = (str, int, float, bool, type(None))
"""Of a dict, that are the same when they are read again."""


def written(form: Form) -> list[Any]:
    """Of lists, texts and numbers. Raises ValueError for a dict with other keys."""
    return [form.nbytes, _written(form.tree, "kv")]


def form_of(text: list[Any]) -> Form:
    """The form that was written so. Raises ValueError, TypeError and the like for what was not."""
    nbytes, tree = text
    return Form(_tree(tree), int(nbytes))


def _written(tree: Tree, path: str) -> Any:
    if tree is None:
        return None
    if isinstance(tree, Leaf):
        dtype = str(tree.dtype).removeprefix("torch.")
        return [dtype, list(tree.shape), tree.offset, tree.nbytes]
    for key in tree.keys:
        if type(key) not in _KEYS:
            raise ValueError(
                f"{path} has the key {key!r:.40}, a {type(key).__name__}; a manager with a name "
                "keeps dicts whose keys are str, int, float, bool or None"
            )
    below = [_written(one, f"{path}[{number}]") for number, one in enumerate(tree.below)]
    return [tree.kind.__name__, list(tree.keys), below]


def _tree(text: Any) -> Tree:
    if text is None:
        return None
    if text[0] in _KINDS:
        kind, keys, below = text
        return Branch.of(_KINDS[kind], tuple(keys), tuple(_tree(one) for one in below))
    name, shape, offset, nbytes = text
    dtype = getattr(torch, name)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{name} is no dtype")
    return Leaf(dtype, tuple(map(int, shape)), int(offset), int(nbytes))
