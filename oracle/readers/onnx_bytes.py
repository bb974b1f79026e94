"""The bytes of an ONNX file without the values of its tensors, which may be most of it.

A protocol buffer is a sequence of fields, each a key (number and wire type) and a value; a nested
message is a value after its length. The file is mapped, and values that are left out are never
read, so a model of two gigabytes costs no more than its graph. Values of up to `SMALL` bytes are
kept, since they may hold a shape.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from oracle.spec.files import opened

LARGEST = 2**31  # bytes; a protocol buffer cannot be longer
GRAPH = 2**24  # bytes of a file without the values of its tensors
SMALL = 2**10
DEEPEST, FIELDS = 32, 2**19  # a graph of 17,000 nodes
# field of a message -> the message in it
INSIDE = {
    "model": {7: "graph"},
    "graph": {1: "node", 5: "tensor"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph"},
    "tensor": {},
}
VALUES = {4, 5, 6, 7, 9, 10, 11}  # fields of a tensor that hold its values


class NotOnnx(ValueError):
    """An error of bytes that are no protocol buffer, or too many for a graph."""


def without_values(path: Path) -> bytes:
    """Return the message of an ONNX file, its tensors without their values."""
    with opened(path, "model of ONNX", LARGEST) as file:
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return bytes(_message(data, 0, len(data), "model", 0, count()))
        except ValueError as error:  # also of a file without a byte
            raise error if isinstance(error, NotOnnx) else NotOnnx(str(error)) from None


def _message(
    data: mmap.mmap, begin_at: int, end: int, kind: str, depth: int, field_count: Iterator[int]
) -> bytearray:
    """Return the message between two places, without values of tensors."""
    if depth > DEEPEST:
        raise NotOnnx(f"nested more than {DEEPEST} deep")
    out = bytearray()
    for number, start, begin, stop in _fields(data, begin_at, end):
        if next(field_count) > FIELDS:
            raise NotOnnx(f"its graph has more than {FIELDS} fields")
        if inner := INSIDE[kind].get(number):
            body = _message(data, begin, stop, inner, depth + 1, field_count)
            out += _varint(number << 3 | 2) + _varint(len(body)) + body
        elif kind != "tensor" or number not in VALUES or stop - begin <= SMALL:
            if len(out) + stop - start > GRAPH:
                raise NotOnnx(f"its graph has more than {GRAPH} bytes, weights aside")
            out += data[start:stop]
    if len(out) > GRAPH:
        raise NotOnnx(f"its graph has more than {GRAPH} bytes, weights aside")
    return out


def _fields(data: mmap.mmap, place: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the number of each field, its start, the begin of its value, and its end."""
    while place < end:
        start = place
        key, place = _number(data, place, end)
        number, wire = key >> 3, key & 7
        if wire == 0:
            begin, place = place, _number(data, place, end)[1]
        elif wire in (1, 5):
            begin, place = place, place + (8 if wire == 1 else 4)
        elif wire == 2:
            length, begin = _number(data, place, end)
            place = begin + length
        else:
            raise NotOnnx(f"no field has the wire type {wire}")
        if place > end or not number:
            raise NotOnnx("a field ends beyond its message")
        yield number, start, begin, place


def _number(data: mmap.mmap, place: int, end: int) -> tuple[int, int]:
    """Return a number of seven bits a byte, and the place after it."""
    value = shift = 0
    while place < end and shift < 70:
        byte = data[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
    raise NotOnnx("a number is cut off")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])
