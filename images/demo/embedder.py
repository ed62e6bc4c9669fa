"""The demo's engine: sentence embeddings over HTTP, on CPU, from a local directory that holds all-MiniLM-L6-v2.

    python3 embedder.py DIRECTORY PORT

    GET  /health   200 once the model is loaded
    POST /embed    {"texts": ["..."]} -> {"embeddings": [[384 numbers], ...]}

It reads the published files and nothing else (vocab.txt, config.json, model.safetensors) with numpy alone, so that it stands for any engine
that starts from a complete directory. Batches are computed text by text: this shows that the weights are right, not how fast they can be.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import sys
import unicodedata
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
MOST_TOKENS = 256
MOST_TEXTS = 64
MOST_BYTES = 1 << 20
LONGEST_WORD = 100


class WordPiece:
    """BERT's uncased tokenizer."""

    def __init__(self, vocabulary: Path) -> None:
        self._ids = {line: number for number, line in enumerate(vocabulary.read_text(encoding="utf-8").splitlines())}

    def encode(self, text: str) -> list[int]:
        """Token ids with [CLS] and [SEP], cut to MOST_TOKENS."""
        tokens = [self._ids[piece] for word in _words(text) for piece in self._pieces(word)]
        return [self._ids["[CLS]"], *tokens[: MOST_TOKENS - 2], self._ids["[SEP]"]]

    def _pieces(self, word: str) -> list[str]:
        pieces: list[str] = []
        start = 0
        while start < len(word) <= LONGEST_WORD:
            prefix = "##" if start else ""
            end = next((end for end in range(len(word), start, -1) if prefix + word[start:end] in self._ids), start)
            if end == start:
                return ["[UNK]"]
            pieces.append(prefix + word[start:end])
            start = end
        return pieces or ["[UNK]"]


def _words(text: str) -> Iterator[str]:
    """Lower case, without accents or control characters, split at spaces, punctuation and CJK characters."""
    word = ""
    for character in unicodedata.normalize("NFD", text.lower()):
        category = unicodedata.category(character)
        if category == "Mn" or (category.startswith("C") and not character.isspace()):
            continue
        alone = category.startswith("P") or (character.isascii() and category.startswith("S")) or _is_cjk(character)
        if (alone or character.isspace()) and word:
            yield word
            word = ""
        if alone:
            yield character
        elif not character.isspace():
            word += character
    if word:
        yield word


def _is_cjk(character: str) -> bool:
    return "\u3400" <= character <= "\u9fff" or "\uf900" <= character <= "\ufaff" or character >= "\U00020000"


def read_safetensors(path: Path) -> dict[str, Array]:
    """The float32 tensors of a file, mapped, not copied."""
    data = np.memmap(path, mode="r", dtype=np.uint8)
    (length,) = struct.unpack("<Q", data[:8].tobytes())
    header = json.loads(data[8 : 8 + length].tobytes())
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            start, end = entry["data_offsets"]
            tensors[name] = data[8 + length + start : 8 + length + end].view(np.float32).reshape(entry["shape"])
    return tensors


class MiniLM:
    """A BERT encoder with mean pooling and unit-length output."""

    def __init__(self, directory: Path) -> None:
        config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
        self._heads: int = config["num_attention_heads"]
        self._layers: int = config["num_hidden_layers"]
        self._epsilon: float = config["layer_norm_eps"]
        self._weights = read_safetensors(directory / "model.safetensors")
        self._tokenizer = WordPiece(directory / "vocab.txt")

    def embed(self, text: str) -> Array:
        """One vector of the model's width, of length 1."""
        ids = self._tokenizer.encode(text)
        weights = self._weights
        state = (
            weights["embeddings.word_embeddings.weight"][ids]
            + weights["embeddings.position_embeddings.weight"][: len(ids)]
            + weights["embeddings.token_type_embeddings.weight"][0]
        )
        state = self._normalize(state, "embeddings.LayerNorm")
        for layer in range(self._layers):
            state = self._encode(state, f"encoder.layer.{layer}.")
        pooled: Array = state.mean(axis=0)
        return pooled / np.float32(np.linalg.norm(pooled))

    def _encode(self, state: Array, layer: str) -> Array:
        query, key, value = (
            self._split(self._linear(state, f"{layer}attention.self.{n}")) for n in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 2, 1) / np.float32(np.sqrt(query.shape[-1]))
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = (scores / scores.sum(axis=-1, keepdims=True)) @ value
        attended = self._linear(mixed.transpose(1, 0, 2).reshape(state.shape), f"{layer}attention.output.dense")
        state = self._normalize(state + attended, f"{layer}attention.output.LayerNorm")
        inner = _gelu(self._linear(state, f"{layer}intermediate.dense"))
        return self._normalize(state + self._linear(inner, f"{layer}output.dense"), f"{layer}output.LayerNorm")

    def _split(self, state: Array) -> Array:
        return state.reshape(len(state), self._heads, -1).transpose(1, 0, 2)

    def _linear(self, state: Array, name: str) -> Array:
        product: Array = state @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]
        return product

    def _normalize(self, state: Array, name: str) -> Array:
        centred = state - state.mean(axis=-1, keepdims=True)
        scale = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + np.float32(self._epsilon))
        normal: Array = centred / scale * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]
        return normal


def _gelu(x: Array) -> Array:
    """x * Phi(x), with the error function of Abramowitz and Stegun, 7.1.26 (off by at most 1.5e-7)."""
    z = np.abs(x) / np.float32(np.sqrt(2.0))
    t = 1 / (1 + np.float32(0.3275911) * z)
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    error_function = np.sign(x) * (1 - series * np.exp(-z * z))
    result: Array = (x * 0.5 * (1 + error_function)).astype(np.float32)
    return result


def answer(model: MiniLM, body: bytes) -> Mapping[str, object]:
    """The answer to /embed. Raises ValueError that says what is wrong with the request."""
    request = json.loads(body)
    texts = request.get("texts") if isinstance(request, dict) else None
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts) or len(texts) > MOST_TEXTS:
        raise ValueError(f'send {{"texts": [...]}} with at most {MOST_TEXTS} strings')
    return {"embeddings": [[float(number) for number in model.embed(text)] for text in texts]}


def handler(model: MiniLM) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            self._reply(HTTPStatus.OK if self.path == "/health" else HTTPStatus.NOT_FOUND, {})

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            if self.path != "/embed" or not 0 < length <= MOST_BYTES:
                self._reply(HTTPStatus.NOT_FOUND, {"error": f"POST /embed takes up to {MOST_BYTES} bytes"})
                return
            try:
                self._reply(HTTPStatus.OK, answer(model, self.rfile.read(length)))
            except ValueError as error:
                self._reply(HTTPStatus.BAD_REQUEST, {"error": str(error)})

        def _reply(self, status: HTTPStatus, body: Mapping[str, object]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return Handler


def main() -> None:
    directory, port = Path(sys.argv[1]), int(sys.argv[2])
    with ThreadingHTTPServer(("", port), handler(MiniLM(directory))) as server:
        # As a container's first process it would not notice SIGTERM otherwise; nothing is lost by leaving at once.
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        server.serve_forever()


if __name__ == "__main__":
    main()
