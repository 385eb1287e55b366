"""A tiny ONNX model written byte by byte, so that tests need no `onnx` package.

Protocol buffers in short: a field is its number and wire type in one varint, then a varint or a length and bytes.
Field numbers are those of onnx.proto.
"""

from __future__ import annotations


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _value_info(name: str, dims: list[int | str]) -> bytes:
    shape = b"".join(_bytes(1, _number(1, d) if isinstance(d, int) else _bytes(2, d)) for d in dims)
    tensor_type = _number(1, 1) + _bytes(2, shape)  # 1 = float
    return _bytes(1, name) + _bytes(2, _bytes(1, tensor_type))


def resize_model(scale: float, dims: list[int | str] | None = None) -> bytes:
    """Nearest-neighbour enlargement (the `Resize` operator) of ``[1, 3, H, W]``."""
    import struct

    shape = dims or [1, 3, "h", "w"]
    scales = _number(1, 4) + _number(2, 1) + _bytes(4, struct.pack("<4f", 1, 1, scale, scale)) + _bytes(8, "scales")
    mode = _bytes(1, "mode") + _bytes(4, "nearest") + _number(20, 3)  # 3 = string
    coordinates = _bytes(1, "coordinate_transformation_mode") + _bytes(4, "asymmetric") + _number(20, 3)
    rounding = _bytes(1, "nearest_mode") + _bytes(4, "floor") + _number(20, 3)
    node = _bytes(1, "x") + _bytes(1, "") + _bytes(1, "scales") + _bytes(2, "y") + _bytes(4, "Resize")
    node += _bytes(5, mode) + _bytes(5, coordinates) + _bytes(5, rounding)
    graph = _bytes(1, node) + _bytes(2, "g") + _bytes(5, scales)
    graph += _bytes(11, _value_info("x", shape)) + _bytes(12, _value_info("y", [1, shape[1], "oh", "ow"]))
    return _number(1, 8) + _bytes(7, graph) + _bytes(8, _bytes(1, "") + _number(2, 13))
