"""What stands between two brokers: a proxy that passes bytes on, late, or not at all."""

from __future__ import annotations

import asyncio
import contextlib


class Proxy:
    """Passes connections on to `port`. `delay` seconds for each piece; `cut` drops what there is and refuses more;
    `silent` keeps connections open and passes nothing on, as a network does that loses everything."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.port = 0
        self.delay = 0.0
        self.silent = False
        self.refuses = False
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> Proxy:
        """Listen on a port that the system chooses."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def cut(self) -> None:
        """Break all connections and take no new ones."""
        self.refuses = True
        for writer in self._writers:
            writer.close()

    def heal(self) -> None:
        """Pass everything on again; what was broken stays so."""
        if self.silent:
            for writer in self._writers:
                writer.close()
        self.refuses = self.silent = False
        self.delay = 0.0

    async def stop(self) -> None:
        """Let everything go."""
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuses:
            writer.close()
            return
        with contextlib.suppress(OSError):
            other_reader, other = await asyncio.open_connection("127.0.0.1", self.target)
            self._writers |= {writer, other}
            for source, sink in ((reader, other), (other_reader, writer)):
                task = asyncio.ensure_future(self._pass_on(source, sink))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            return
        writer.close()

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65_536):
                if self.delay:
                    await asyncio.sleep(self.delay)
                if not self.silent:
                    sink.write(data)
        sink.close()
        self._writers.discard(sink)
