"""A value, nested tensors, as one row of bytes and back: same structure, dtypes, shapes, bits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch

ALIGN: Final = 64
"""Where a tensor's bytes begin: any dtype can be seen there, and kernels like it."""
DEPTH_MAX: Final = 32
LEAVES_MAX: Final = 16_384
"""Tensors of one value: keys and values of a thousand layers, several times over."""
_PLAIN: Final = (torch.Tensor, torch.nn.Parameter)
_TREES: Final = (tuple, list, dict)


@dataclass(frozen=True, slots=True)
class Leaf:
    """Where one tensor's bytes lie, and what they are."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Branch:
    """A tuple, list or dict of what is below it."""

    kind: type
    keys: tuple[Any, ...]
    """Of a dict, in its order."""
    marks: tuple[Any, ...]
    """What tells apart keys that are equal: 1, True and 1.0 are."""
    below: tuple[Branch | Leaf | None, ...]

    @classmethod
    def of(cls, kind: type, keys: tuple[Any, ...], below: tuple[Tree, ...]) -> Branch:
        return cls(kind, keys, tuple(map(_mark, keys)), below)


Tree = Branch | Leaf | None


@dataclass(frozen=True, slots=True)
class Form:
    """All there is to a value but its bytes. Steps of one form share the object."""

    tree: Tree
    nbytes: int


def flatten(value: Any) -> tuple[Form, list[torch.Tensor]]:
    """Raises TypeError and ValueError for what cannot be kept, with the leaf's path."""
    tensors: list[torch.Tensor] = []
    offset = 0

    def walk(node: Any, path: str, depth: int) -> Tree:
        nonlocal offset
        if node is None:
            return None
        if type(node) in _TREES:
            if depth == DEPTH_MAX:
                raise ValueError(f"{path} is nested deeper than {DEPTH_MAX}; flatten the value")
            return Branch.of(
                type(node),
                tuple(node) if type(node) is dict else (),
                tuple([walk(one, where, depth + 1) for one, where in _below(node, path)]),
            )
        check_leaf(node, path)
        if len(tensors) == LEAVES_MAX:
            raise ValueError(f"kv has more than {LEAVES_MAX} tensors; stack some of them")
        nbytes = node.numel() * node.element_size()
        leaf = Leaf(node.dtype, tuple(node.shape), offset, nbytes)
        tensors.append(node.detach())
        offset += -(-nbytes // ALIGN) * ALIGN
        return leaf

    tree = walk(value, "kv", 0)
    if not tensors:
        raise ValueError(f"kv is {value!r:.60}, without a tensor in it; hand in at least one")
    return Form(tree, offset), tensors


def _mark(key: Any) -> Any:
    if isinstance(key, tuple):
        return tuple(map(_mark, key))
    return key.hex() if type(key) is float else type(key)


def _below(node: Any, path: str) -> Iterator[tuple[Any, str]]:
    if type(node) is dict:
        return ((one, f"{path}[{key!r:.40}]") for key, one in node.items())
    return ((one, f"{path}[{at}]") for at, one in enumerate(node))


def check_leaf(leaf: Any, path: str) -> None:
    """Raises TypeError and ValueError."""
    if type(leaf) not in _PLAIN:
        kind = f"{type(leaf).__module__}.{type(leaf).__qualname__}".removeprefix("builtins.")
        right = "a torch.Tensor, or a tuple, list or dict of them"
        if hasattr(leaf, "to_legacy_cache") or hasattr(leaf, "layers"):
            right += "; of a transformers cache hand in [(l.keys, l.values) for l in cache.layers]"
        raise TypeError(f"{path} is a {kind}; use {right}")
    if leaf.layout is not torch.strided or leaf.is_quantized or leaf.is_nested:
        said = "quantized" if leaf.is_quantized else str(leaf.layout)
        raise TypeError(f"{path} is {said}; use a dense tensor (to_dense(), dequantize())")
    if leaf.device.type not in ("cpu", "cuda"):
        raise TypeError(f"{path} is on {leaf.device}; use a tensor on a cpu or cuda device")
    if leaf.is_conj() or leaf.is_neg():
        raise ValueError(f"{path} is a lazy conjugate; use resolve_conj().resolve_neg()")


def pack(tensors: list[torch.Tensor], form: Form, row: torch.Tensor) -> None:
    """The tensors' bytes into `row`, uint8 and at least as long as the form's."""
    for leaf, tensor in zip(leaves(form.tree), tensors, strict=True):
        if leaf.nbytes:
            part = row[leaf.offset : leaf.offset + leaf.nbytes]
            part.view(leaf.dtype).view(leaf.shape).copy_(tensor, non_blocking=True)


def unpack(form: Form, row: torch.Tensor) -> Any:
    """The value, its tensors being parts of `row`."""

    def build(tree: Tree) -> Any:
        if tree is None:
            return None
        if isinstance(tree, Leaf):
            if not tree.nbytes:
                return torch.empty(tree.shape, dtype=tree.dtype, device=row.device)
            part = row[tree.offset : tree.offset + tree.nbytes]
            return part.view(tree.dtype).view(tree.shape)
        below = map(build, tree.below)
        if tree.kind is dict:
            return dict(zip(tree.keys, below, strict=True))
        return tree.kind(below)

    with torch.inference_mode(mode=False):  # what a caller got there is the caller's afterwards too
        return build(form.tree)


def leaves(tree: Tree) -> Iterator[Leaf]:
    """Of a value, in order."""
    if isinstance(tree, Leaf):
        yield tree
    elif tree is not None:
        for below in tree.below:
            yield from leaves(below)
