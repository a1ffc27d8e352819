"""Which value a step has: a number that was never used before, and its form."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from sys import getsizeof
from typing import Final

from onggi_library.manager.values import Form, Leaf, Tree

_FORM_BITS: Final = 22
FORMS_MAX: Final = 1 << _FORM_BITS
"""Forms at once; most contexts have one or two."""
PACKED_BYTES: Final = 32
"""Of a step's number, an int past 2**30."""


class StepTable:
    """One number a step, its value's serial above its form's: a hundred bytes a step in all. Not
    thread-safe, but for new_serial()."""

    def __init__(self, first: int = 1) -> None:
        """first: the first new serial."""
        self._serials = count(first)
        self._steps: dict[int | str, int] = {}
        self._numbers: dict[Form, int] = {}
        self._forms: list[Form | None] = []
        self._users: list[int] = []
        """Of each form."""
        self._free: list[int] = []
        self._beside = 0
        """Bytes of steps' names and of forms."""

    @property
    def nbytes(self) -> int:
        """What is known of all steps, counted."""
        lists = sum(map(getsizeof, (self._forms, self._users, self._free, self._numbers)))
        return getsizeof(self._steps) + PACKED_BYTES * len(self._steps) + lists + self._beside

    def __len__(self) -> int:
        return len(self._steps)

    def new_serial(self) -> int:
        return next(self._serials)

    def names(self) -> tuple[int | str, ...]:
        return tuple(self._steps)

    def values(self) -> Iterator[tuple[int, Form]]:
        return map(self._value, self._steps.values())

    def get(self, step: object) -> tuple[int, Form] | None:
        packed = self._steps.get(step)  # type: ignore[call-overload]
        return None if packed is None else self._value(packed)

    def find(self, step: int | str) -> tuple[int, Form]:
        """Raises KeyError."""
        return self._value(self._steps[step])

    def replace(self, step: int | str, serial: int, form: Form) -> tuple[int, Form] | None:
        """A step's value from now on; answers the one before."""
        before = self.remove(step) if step in self._steps else None
        number = self._numbers.get(form)
        if number is None:
            number = self._number(form)
        self._users[number] += 1
        self._beside += getsizeof(step)
        self._steps[step] = serial << _FORM_BITS | number
        return before

    def remove(self, step: int | str) -> tuple[int, Form]:
        """Answers the value it had. Raises KeyError."""
        packed = self._steps.pop(step)
        value = self._value(packed)
        self._beside -= getsizeof(step)
        number = packed & FORMS_MAX - 1
        self._users[number] -= 1
        if not self._users[number]:
            del self._numbers[value[1]]
            self._beside -= form_bytes(value[1])
            self._forms[number] = None
            self._free.append(number)
        return value

    def _value(self, packed: int) -> tuple[int, Form]:
        form = self._forms[packed & FORMS_MAX - 1]
        assert form is not None, "a form with users is kept"
        return packed >> _FORM_BITS, form

    def _number(self, form: Form) -> int:
        if len(self._numbers) == FORMS_MAX:
            raise OverflowError(f"values of {FORMS_MAX} different forms are kept; discard some")
        number = self._free.pop() if self._free else len(self._forms)
        self._forms[number : number + 1] = [form]
        self._users[number : number + 1] = [0]
        self._numbers[form] = number
        self._beside += form_bytes(form)
        return number


def form_bytes(form: Form) -> int:
    """Of the objects that a form is."""
    return getsizeof(form) + _tree_bytes(form.tree)


def _tree_bytes(tree: Tree) -> int:
    if tree is None:
        return 0
    if isinstance(tree, Leaf):
        return sum(map(getsizeof, (tree, tree.shape, tree.offset, tree.nbytes)))
    own = sum(map(getsizeof, (tree, tree.keys, tree.marks, tree.below, *tree.keys)))
    return own + sum(map(_tree_bytes, tree.below))
