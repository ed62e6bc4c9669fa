"""What peers say the digest of each piece is, and which pieces they contradict each other about."""

from __future__ import annotations

from blake3 import blake3


def content_digest(outline_digest: bytes, digests: list[bytes]) -> bytes:
    """BLAKE3 over the outline's digest and all piece digests in order (as `Holdings.content_digest`)."""
    hasher = blake3(outline_digest)
    hasher.update(b"".join(digests))
    return hasher.digest()


class Digests:
    """The digest that each piece is checked against, with the pieces in *doubt*.

    The first digest that is announced for a piece is its digest until somebody announces another one: then every announcer is
    distrusted for it, and only the seed (or a pinned content digest) decides.
    """

    def __init__(self, pieces: int) -> None:
        self._agreed: list[bytes | None] = [None] * pieces
        self._decided = 0
        self.doubt = 0

    def get(self, piece: int) -> bytes | None:
        """The agreed digest, as far as it is known; meaningless while the piece is in doubt."""
        return self._agreed[piece]

    def agrees(self, piece: int, digest: bytes) -> bool:
        """Whether an announcement agrees with what is known; the first one always does."""
        known = self._agreed[piece]
        if known is None:
            self._agreed[piece] = digest
            return True
        return known == digest

    def decided(self, piece: int) -> bool:
        """Whether the seed or the pinned content digest has said what the piece's digest is."""
        return bool(self._decided >> piece & 1)

    def question(self, piece: int) -> None:
        """Put a piece in doubt."""
        self.doubt |= 1 << piece

    def decide(self, piece: int, digest: bytes) -> None:
        """Set a piece's digest for good."""
        self._agreed[piece] = digest
        self._decided |= 1 << piece
        self.doubt &= ~(1 << piece)

    def trust_again(self, piece: int) -> None:
        """Only one digest is left among its announcers."""
        self.doubt &= ~(1 << piece)

    def forget(self, piece: int) -> None:
        """Nobody announces the piece any more, and nothing was decided: its next announcer is as good as its first."""
        if not self.decided(piece):
            self._agreed[piece] = None

    def undecided(self, pieces: int) -> int:
        """Those of a set that neither the seed nor the pin has decided."""
        return pieces & ~self._decided

    def complete(self, odd: dict[int, bytes], announced: int) -> list[bytes] | None:
        """All digests as a peer announces them: the agreed ones for `announced`, its own for `odd`. None while some are missing."""
        found: list[bytes] = []
        for piece, known in enumerate(self._agreed):
            own = odd.get(piece)
            if own is None and (known is None or not announced >> piece & 1):
                return None
            found.append(own or known or b"")
        return found


__all__ = ["Digests", "content_digest"]
