"""Frames over a socket: connect, send one with its size in front, receive one. Used by tests that write raw bytes."""

from __future__ import annotations

import socket
import struct


def connect(address: tuple[str, int], timeout: float) -> socket.socket:
    """Connect without Nagle's delay. Each later call on the socket waits up to `timeout` seconds."""
    made = socket.create_connection(address, timeout=timeout)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def send_frame(connection: socket.socket, frame: bytes) -> None:
    """Send a frame with its size in front."""
    connection.sendall(struct.pack(">i", len(frame)) + frame)


def receive_frame(connection: socket.socket) -> bytes | None:
    """Return the next frame without its size; None if the other side has closed or reset the connection."""
    size = _receive(connection, 4)
    return None if size is None else _receive(connection, struct.unpack(">i", size)[0])


def _receive(connection: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        try:
            piece = connection.recv(size - len(data))
        except ConnectionResetError:
            return None
        if not piece:
            return None
        data += piece
    return bytes(data)
