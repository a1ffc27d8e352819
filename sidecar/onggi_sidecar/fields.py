"""Kinds of values that settings have: what each may be, checked where it is read.

A value that would only fail later, deep in a resolver or a system call, is refused here.
"""

import os
import re
from enum import Enum
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from onggi_core.quantity import QuantityError, parse_size

BARE_BYTES_MAX: Final = 1024 * 1024
"""A number below it was hardly meant as bytes; no size of the agent's is so small."""
HOST_CHARS_MAX: Final = 253
_NAME: Final = re.compile(r"[\w-]{1,63}(\.[\w-]{1,63})*\.?", re.ASCII)
"""Of a host: labels, as those of an IPv4 address are."""


def _size(value: object) -> object:
    if isinstance(value, str):
        try:
            return parse_size(value)
        except QuantityError as wrong:
            raise ValueError(wrong.reason) from wrong
    return value


def read_as(value: object) -> str:
    """How a size without a unit was read, where that is so little that another was meant."""
    bare = value if isinstance(value, (int, str)) and not isinstance(value, bool) else ""
    if not (text := str(bare).strip()).isdecimal() or not 0 < (size := int(text)) < BARE_BYTES_MAX:
        return ""
    return f"without a unit it is {size} byte{'s' if size > 1 else ''}; "


def _place(value: object) -> object:
    """As it was written: `Path("")` would be the folder that the agent was started in."""
    if isinstance(value, str):
        if not value:
            raise ValueError("is empty")
        try:
            raw = os.fsencode(value)
        except UnicodeEncodeError as half:  # of a pair of surrogates: YAML can write it
            raise ValueError("has a character that no path can have") from half
        if b"\0" in raw:
            raise ValueError("has a zero byte")
    return value


def _host(value: str) -> str:
    """Empty would be every address the machine has, and some texts make a resolver raise."""
    if not _is_host(value):
        raise ValueError("is neither an address nor a name")
    return value


def _is_host(text: str) -> bool:
    if len(text) > HOST_CHARS_MAX:
        return False
    if ":" not in text:
        return _NAME.fullmatch(text) is not None
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _address(value: str) -> str:
    try:
        parts = urlsplit(value)
        whole = parts.scheme in ("https", "http") and parts.port != 0
        host = parts.hostname or ""
    except ValueError:  # a port or an address in brackets that is none
        whole, host = False, ""
    if value and not (whole and _is_host(host)):
        raise ValueError("is no address that begins with https://")
    return value


def in_any_case(kind: type[Enum]) -> BeforeValidator:
    """Of words of which no two differ by case alone: `--mode active` is Active. YAML reads an Off
    without quotes as false."""
    known = {str(member.value).lower(): member.value for member in kind}

    def read(value: object) -> object:
        word = "off" if value is False else value
        return known.get(word.strip().lower(), value) if isinstance(word, str) else value

    return BeforeValidator(read)


RETENTION_S_MAX: Final = 10 * 365 * 24 * 3600
Retention = Annotated[float, Field(ge=0, le=RETENTION_S_MAX)]
Size = Annotated[int, BeforeValidator(_size), Field(ge=0)]
Place = Annotated[Path, BeforeValidator(_place)]
Host = Annotated[str, AfterValidator(_host)]
Address = Annotated[str, AfterValidator(_address)]
