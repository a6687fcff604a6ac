"""A proxy to PostgreSQL that can cut the connection between an answer and the client."""

from __future__ import annotations

import contextlib
import socket
import threading


class Wire:
    """Passes bytes to a server until a test drops an answer.

    ``lose_answer_to(word)``: the next message that contains *word* reaches the server and is
    answered; the answer is dropped and the connection is cut.
    """

    def __init__(self, port: int) -> None:
        self._server = ("127.0.0.1", port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._word: bytes | None = None
        self._lock = threading.Lock()
        self.lost = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_answer_to(self, word: str) -> None:
        self._word = word.encode()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            server = socket.create_connection(self._server)
            condemned = threading.Event()
            for source, target, from_client in ((client, server, True), (server, client, False)):
                threading.Thread(
                    target=self._pass, args=(source, target, from_client, condemned), daemon=True
                ).start()

    def _pass(
        self,
        source: socket.socket,
        target: socket.socket,
        from_client: bool,
        condemned: threading.Event,
    ) -> None:
        try:
            while data := source.recv(65536):
                if from_client:
                    with self._lock:
                        if self._word is not None and self._word in data:
                            self._word = None
                            condemned.set()
                elif condemned.is_set():
                    self.lost += 1
                    break
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
