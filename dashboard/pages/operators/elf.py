"""Reads a shared library's own tables: functions with their sizes, and its code's size.

Submitted kernels are untrusted files, so this is plain Python over bytes with bounds, not a disassembler.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_MOST_BYTES = 32 << 20
_MOST_SECTIONS, _MOST_SYMBOLS = 256, 20_000
_FUNCTION = 2  # the low four bits of a symbol's info
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_DYNSYM, _SYMTAB = 11, 2


@dataclass(frozen=True)
class Function:
    """A function that the library defines."""

    name: str
    size_bytes: int


@dataclass(frozen=True)
class LibraryFunctions:
    """Functions, the largest first, and the bytes of code in all."""

    functions: Sequence[Function]
    code_bytes: int


def read_library(path: Path) -> LibraryFunctions | None:
    """None if it is no 64-bit little-endian ELF, is damaged, or exceeds the bounds."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            return None
        data = path.read_bytes()
        if data[:6] != b"\x7fELF\x02\x01":
            return None
        return _read(data)
    except (OSError, struct.error, ValueError, IndexError, OverflowError):
        return None


def _read(data: bytes) -> LibraryFunctions:
    (offset,) = struct.unpack_from("<Q", data, 0x28)
    entry, count, names_at = struct.unpack_from("<HHH", data, 0x3A)
    if entry < _SECTION.size or count > _MOST_SECTIONS:
        raise ValueError("not a section table that is read here")
    sections = [_SECTION.unpack_from(data, offset + number * entry) for number in range(count)]
    names = _bytes_of(data, sections[names_at])
    code = sum(one[5] for one in sections if _text(names, one[0]) == ".text")
    tables = [one for one in sections if one[1] in (_SYMTAB, _DYNSYM)]
    tables.sort(key=lambda one: one[1] != _SYMTAB)  # the full table, where it was not stripped
    found = _functions(data, sections, tables[0]) if tables else []
    return LibraryFunctions(sorted(found, key=lambda one: (-one.size_bytes, one.name)), code)


def _functions(data: bytes, sections: Sequence[tuple], table: tuple) -> list[Function]:
    symbols, strings = _bytes_of(data, table), _bytes_of(data, sections[table[6]])
    found = {}
    for number in range(min(len(symbols) // _SYMBOL.size, _MOST_SYMBOLS)):
        name, info, _, section, _, size = _SYMBOL.unpack_from(symbols, number * _SYMBOL.size)
        if info & 15 == _FUNCTION and section:
            found[_text(strings, name)] = size
    return [Function(name, size) for name, size in found.items() if name]


def _bytes_of(data: bytes, section: tuple) -> bytes:
    start, size = section[4], section[5]
    if start + size > len(data):
        raise ValueError("a section beyond the file's end")
    return data[start : start + size]


def _text(strings: bytes, at: int) -> str:
    end = strings.find(b"\0", at)
    return strings[at : end if end >= 0 else None][:120].decode("utf-8", "replace")
