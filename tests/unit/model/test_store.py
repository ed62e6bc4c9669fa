"""One rank's bytes in the directory: room first, pieces verified, nothing lost by a death."""

from __future__ import annotations

import errno
import hashlib
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from blake3 import blake3
from model_parts import IDENTITY, catalogs_of, contents_of, digests_of, fill

from shardpool.errors import StoreError
from shardpool.model import files, store
from shardpool.model.catalog import Catalog, Extent, FileEntry
from shardpool.model.directory import ModelDirectory
from shardpool.model.store import ShardStore

PIECE = 128 * 1024


@pytest.fixture
def catalog(source: Path) -> Catalog:
    return catalogs_of(source, piece_size=PIECE)[0]


@pytest.fixture
def directory(volume: Path) -> ModelDirectory:
    made = ModelDirectory(volume / "model")
    made.prepare(IDENTITY)
    return made


def test_pieces_land_in_the_files_and_are_served_from_the_same_pages(
    directory: ModelDirectory, catalog: Catalog, source: Path
) -> None:
    shard = ShardStore(directory, catalog)
    assert shard.open() == {}
    shard.prefault()
    fill(shard, source)
    assert contents_of(directory.tree) == contents_of(source)
    for piece, digest in digests_of(catalog, source).items():
        views = shard.contents(piece)
        assert all(view.readonly for view in views)
        assert blake3(b"".join(views)).digest() == digest == shard.digest(piece)
        del views
    shard.close()
    assert not any(thread.name == "prefault" for thread in threading.enumerate())


def test_a_destination_has_just_the_length_of_its_piece(directory: ModelDirectory, catalog: Catalog) -> None:
    shard = ShardStore(directory, catalog)
    shard.open()
    for piece in range(catalog.pieces):
        views = shard.destination(piece)
        assert sum(len(view) for view in views) == catalog.piece_length(piece)
        assert not any(view.readonly for view in views)
    with pytest.raises(IndexError):
        shard.destination(catalog.pieces)
    with pytest.raises(IndexError):
        shard.record(catalog.pieces, b"x" * 32)
    shard.close()


def test_the_next_start_keeps_what_is_verified_and_still_right(
    directory: ModelDirectory, catalog: Catalog, source: Path
) -> None:
    first = ShardStore(directory, catalog)
    first.open()
    fill(first, source, range(10))
    first.forget(2)
    first.destination(3)[0][:1] = bytes([first.contents(3)[0][0] ^ 1])
    fill_unrecorded = first.destination(12)
    fill_unrecorded[0][:4] = b"half"
    del fill_unrecorded
    first.close()

    second = ShardStore(directory, catalog)
    expected = digests_of(catalog, source)
    assert second.open() == {piece: expected[piece] for piece in range(10) if piece not in {2, 3}}
    fill(second, source)
    second.close()
    third = ShardStore(directory, catalog)
    assert third.open() == expected
    third.close()


def test_files_that_vanished_are_not_taken_for_filled(
    directory: ModelDirectory, catalog: Catalog, source: Path
) -> None:
    first = ShardStore(directory, catalog)
    first.open()
    fill(first, source)
    first.close()
    (directory.tree / "model-00001-of-00002.safetensors").unlink()
    (directory.tree / "config.json").write_bytes(b"x" * 5000)
    second = ShardStore(directory, catalog)
    kept = second.open()
    assert 0 < len(kept) < catalog.pieces
    fill(second, source)
    second.close()
    assert contents_of(directory.tree) == contents_of(source)


KILLED = """
import sys, signal, os
from pathlib import Path
from model_parts import fill, catalogs_of
from shardpool.model.directory import ModelDirectory
from shardpool.model.store import ShardStore
source, place, pieces = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
catalog = catalogs_of(source, piece_size=131072)[0]
store = ShardStore(ModelDirectory(place), catalog)
store.open()
store.prefault()
fill(store, source, range(pieces))
store.destination(pieces)[0][:7] = b"partial"
print("filled", flush=True)
signal.pause()
"""


def test_after_a_kill_only_what_is_missing_is_asked_for(
    directory: ModelDirectory, catalog: Catalog, source: Path
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(source), str(directory.path), "9"],
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "filled\n"
        with pytest.raises(StoreError, match=rf"rank 0 of .* in use by pid {process.pid}"):
            ShardStore(directory, catalog).open()
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    shard = ShardStore(directory, catalog)
    assert shard.open() == {piece: digest for piece, digest in digests_of(catalog, source).items() if piece < 9}
    shard.close()


def test_ranks_fill_one_directory_at_once(volume: Path, source: Path) -> None:
    directory = ModelDirectory(volume / "model")
    directory.prepare(IDENTITY)
    catalogs = catalogs_of(source, "striped", 3, piece_size=PIECE)
    stores = [ShardStore(ModelDirectory(directory.path), catalog) for catalog in catalogs]
    threads = [
        threading.Thread(target=lambda one=one: (one.open(), one.prefault(), fill(one, source))) for one in stores
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert contents_of(directory.tree) == contents_of(source)
    for one in stores:
        one.close()


def test_common_files_are_each_ranks_own(volume: Path, per_rank_source: Path) -> None:
    directory = ModelDirectory(volume / "model")
    directory.prepare(IDENTITY)
    catalogs = catalogs_of(per_rank_source, "sharded", 2, piece_size=PIECE)
    stores = [ShardStore(directory, catalog) for catalog in catalogs]
    for one in stores:
        one.open()
    fill(stores[0], per_rank_source)
    for piece in range(catalogs[1].pieces):
        for view in stores[1].destination(piece):
            view[:] = b"\xff" * len(view)
    expected = digests_of(catalogs[0], per_rank_source)
    assert {piece: stores[0].digest(piece) for piece in expected} == expected
    for one in stores:
        one.close()


def test_sealing_keeps_addresses_and_ends_writing(directory: ModelDirectory, catalog: Catalog, source: Path) -> None:
    shard = ShardStore(directory, catalog)
    shard.open()
    shard.prefault()
    fill(shard, source)
    before = shard.regions()
    assert [(region.start, region.length) for region in before] == [(e.start, e.length) for e in catalog.extents]
    assert len(shard.writable_regions()) == len(before)
    abandoned = shard.destination(0)
    shard.seal()
    shard.seal()
    assert shard.regions() == before
    assert shard.writable_regions() == []
    with pytest.raises(StoreError, match="sealed"):
        shard.destination(0)
    abandoned[0][:1] = bytes(abandoned[0][:1])  # memory that a late writer holds is still there
    assert shard.digest(0) == digests_of(catalog, source)[0]
    shard.close()
    shard.close()


def test_regions_are_where_the_bytes_are(directory: ModelDirectory, catalog: Catalog, source: Path) -> None:
    import ctypes

    shard = ShardStore(directory, catalog)
    shard.open()
    fill(shard, source)
    for regions in (shard.regions(), shard.writable_regions()):
        joined = b"".join(ctypes.string_at(region.address, region.length) for region in regions)
        assert joined == b"".join(data for path, data in sorted(contents_of(source).items()))
    shard.close()


def test_views_outlive_the_store(directory: ModelDirectory, catalog: Catalog, source: Path) -> None:
    shard = ShardStore(directory, catalog)
    shard.open()
    fill(shard, source)
    views = shard.contents(1)
    shard.close()
    assert blake3(b"".join(views)).digest() == digests_of(catalog, source)[1]


def test_no_descriptor_is_left_after_close(directory: ModelDirectory, catalog: Catalog, source: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    shard = ShardStore(directory, catalog)
    shard.open()
    fill(shard, source, range(3))
    shard.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_cut_by_somebody_is_an_error_and_not_a_crash(
    directory: ModelDirectory, catalog: Catalog, source: Path
) -> None:
    shard = ShardStore(directory, catalog)
    shard.open()
    fill(shard, source)
    os.truncate(directory.tree / "model-00001-of-00002.safetensors", 100)
    with pytest.raises(StoreError, match=r"model-00001-of-00002\.safetensors was cut to 100"):
        shard.digest(1)
    shard.close()


def test_forgetting_a_file_forgets_its_pieces(directory: ModelDirectory, catalog: Catalog, source: Path) -> None:
    shard = ShardStore(directory, catalog)
    shard.open()
    fill(shard, source)
    forgotten = shard.forget_file("tokenizer.json")
    number = next(n for n, entry in enumerate(catalog.files) if entry.path == "tokenizer.json")
    touching = {p for p in range(catalog.pieces) if any(span.file == number for span in catalog.piece_spans(p))}
    assert set(forgotten) == touching
    shard.close()
    again = ShardStore(directory, catalog)
    assert set(again.open()) == set(range(catalog.pieces)) - touching
    again.close()


def test_a_shard_without_bytes_opens(directory: ModelDirectory) -> None:
    shard = ShardStore(directory, Catalog("whole", 1, 0, (FileEntry("empty", 0),), ()))
    assert shard.open() == {}
    shard.prefault()
    assert shard.regions() == []
    shard.close()
    assert (directory.tree / "empty").read_bytes() == b""


def huge(size: int) -> Catalog:
    files_ = (FileEntry("sub/m.safetensors", size),)
    return Catalog("whole", 1, 0, files_, (Extent(0, 0, 0, size),))


def test_too_little_space_is_said_before_a_file_is_made(directory: ModelDirectory) -> None:
    state = os.statvfs(directory.state)
    size = state.f_bavail * state.f_frsize + (64 << 30)
    with pytest.raises(StoreError, match=rf"{directory.state} has \d+ bytes free on \w+ and needs {size}") as refusal:
        ShardStore(directory, huge(size)).open()
    assert refusal.value.exit_code == 6
    assert not directory.tree.exists()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (errno.ENOSPC, "no space is left"),
        (errno.EDQUOT, "quota"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "may not write"),
        (errno.EIO, "Input/output error"),
        (errno.EFBIG, "that large"),
        (errno.EMFILE, "open files"),
    ],
)
def test_a_volume_that_fails_is_named_and_left_clean(
    directory: ModelDirectory, monkeypatch: pytest.MonkeyPatch, code: int, said: str
) -> None:
    def fail(descriptor: int, offset: int, length: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "posix_fallocate", fail)
    with pytest.raises(StoreError, match=said) as refusal:
        ShardStore(directory, huge(1 << 20)).open()
    assert str(directory.tree / "sub" / "m.safetensors") in str(refusal.value)
    if code != errno.EMFILE:
        assert "(1048576 bytes are needed)" in str(refusal.value)
    assert not directory.tree.exists()
    ModelDirectory(directory.path).clean()
    assert not directory.state.exists()


def test_a_file_system_that_cannot_reserve_is_used_without(
    directory: ModelDirectory, catalog: Catalog, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(descriptor: int, offset: int, length: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(os, "posix_fallocate", unsupported)
    shard = ShardStore(directory, catalog)
    shard.open()
    fill(shard, source)
    shard.close()
    assert contents_of(directory.tree) == contents_of(source)


def test_storage_is_reserved_ahead_or_with_the_piece(
    directory: ModelDirectory, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_ALLOCATION_SECONDS", 0.0)
    monkeypatch.setattr(store, "_ALLOCATION_STEP", 4096)
    shard = ShardStore(directory, catalog)
    shard.open()
    last = catalog.piece_spans(catalog.pieces - 1)[-1]
    path = directory.tree / catalog.files[last.file].path
    assert path.stat().st_blocks == 0
    shard.destination(catalog.pieces - 1)
    assert path.stat().st_blocks > 0
    shard.close()


def test_a_kernel_without_populate_is_lived_with(
    directory: ModelDirectory, catalog: Catalog, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_MADV_POPULATE_WRITE", 9999)
    shard = ShardStore(directory, catalog)
    shard.open()
    shard.prefault()
    fill(shard, source)
    shard.close()
    assert contents_of(directory.tree) == contents_of(source)


def test_too_few_descriptors_are_named_with_the_number_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (64, 64))
    with pytest.raises(StoreError, match=r"limit of 64 open files is too low: .* need 2\d\d"):
        files.require_descriptors(200)


def test_the_soft_limit_of_descriptors_is_raised_where_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (64, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limits: raised.append(limits))
    files.require_descriptors(200)
    assert 264 > raised[0][0] >= 200
    assert raised[0][1] == 4096


def test_another_outline_of_the_same_place_starts_anew(
    directory: ModelDirectory, catalog: Catalog, source: Path
) -> None:
    first = ShardStore(directory, catalog)
    first.open()
    fill(first, source)
    first.close()
    other = catalogs_of(source, piece_size=2 * PIECE)[0]
    second = ShardStore(directory, other)
    assert second.open() == {}
    second.close()


def test_stripes_of_other_sizes_are_refused_not_cut(directory: ModelDirectory) -> None:
    directory.tree.mkdir()
    (directory.tree / "m").write_bytes(b"x" * 100)
    catalog = Catalog("striped", 2, 0, (FileEntry("m", 50),), (Extent(0, 0, 0, 25),))
    with pytest.raises(StoreError, match="another revision"):
        ShardStore(directory, catalog).open()
    assert (directory.tree / "m").stat().st_size == 100


@pytest.mark.parametrize(
    "call", [lambda s: s.contents(0), lambda s: s.digest(0), lambda s: s.regions(), lambda s: s.destination(0)]
)
def test_a_store_that_is_not_open_says_so(
    directory: ModelDirectory, catalog: Catalog, call: Callable[[ShardStore], object]
) -> None:
    with pytest.raises(StoreError, match="not open"):
        call(ShardStore(directory, catalog))


def test_a_store_is_opened_once(directory: ModelDirectory, catalog: Catalog) -> None:
    shard = ShardStore(directory, catalog)
    shard.open()
    with pytest.raises(StoreError, match="open already"):
        shard.open()
    assert shard.destination(0)
    shard.close()
    shard.open()
    assert shard.destination(0)
    shard.close()


def test_whole_files_are_compared_with_their_sha256(directory: ModelDirectory, catalog: Catalog, source: Path) -> None:
    from shardpool.model.verify import verify_files

    shard = ShardStore(directory, catalog)
    shard.open()
    fill(shard, source)
    shard.close()
    published = {path: hashlib.sha256(data).hexdigest() for path, data in contents_of(source).items()}
    assert verify_files(directory, published) == []
    with open(directory.tree / "tokenizer.json", "r+b") as file:
        file.write(b"X")
    assert verify_files(directory, {**published, "added_tokens.txt": "0" * 64, "of another rank": "1" * 64}) == [
        "added_tokens.txt",
        "tokenizer.json",
    ]
    stop = threading.Event()
    stop.set()
    assert verify_files(directory, {"tokenizer.json": "0" * 64}, stop=stop) == []
